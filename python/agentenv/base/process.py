"""Child processes: short commands with a deadline, and long-lived ones that outlive us and can be found again."""

import asyncio
import contextlib
import errno
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.errors import TimedOut, Unavailable

_TAIL_BYTES = 2048
_DETACHED_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


class CommandFailed(Unavailable):
    """A command ended with an error; the message holds the end of what it wrote."""

    code = "command_failed"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command that ended with 0 wrote."""

    stdout: bytes
    stderr: bytes


async def run(
    arguments: Sequence[str | Path],
    *,
    stdin: bytes | None = None,
    timeout_seconds: float = 30,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> CommandResult:
    """Run a command to its end and return its output.

    Raises `CommandFailed` on another exit code than 0 or a program that is not there, `TimedOut` when the
    deadline passes; the process (with its group) is gone in every case, also when the caller is cancelled.
    """
    name = Path(arguments[0]).name
    try:
        child = await asyncio.create_subprocess_exec(  # noqa: TID251 - this is the one place
            *map(str, arguments),
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=None if environment is None else dict(environment),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(f"{name} could not be started: {error.strerror or error}") from error
    try:
        async with asyncio.timeout(timeout_seconds):
            stdout, stderr = await child.communicate(stdin)
    except TimeoutError as error:
        raise TimedOut(f"{name} did not end within {timeout_seconds:g} s") from error
    finally:
        if child.returncode is None:
            _kill_group(child.pid)
            await child.wait()
    if child.returncode != 0:
        tail = (stderr or stdout)[-_TAIL_BYTES:].decode(errors="replace").strip()
        raise CommandFailed(f"{name} ended with {child.returncode}: {tail}")
    return CommandResult(stdout, stderr)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process that can be told from a later one with the same number.

    `start_ticks` is field 22 of /proc/PID/stat: clock ticks between boot and the start of the process.
    """

    pid: int
    start_ticks: int

    def is_alive(self) -> bool:
        """Return whether this very process still runs (a zombie does not)."""
        stat = _read_stat(self.pid)
        return stat is not None and stat == (self.start_ticks, True)

    def kill(self) -> None:
        """Send SIGKILL to this very process; nothing happens when it has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno == errno.ESRCH:
                return
            raise
        try:
            # The descriptor pins the process, so the check and the signal speak of the same one.
            if self.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)

    async def wait_ended(self) -> None:
        """Return when this process has ended; it need not be our child."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno == errno.ESRCH:
                return
            raise
        try:
            if self.is_alive():
                await _wait_readable(descriptor)
        finally:
            os.close(descriptor)


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process that has this number now, or None."""
    stat = _read_stat(pid)
    return None if stat is None else ProcessIdentity(pid, stat[0])


def _read_stat(pid: int) -> tuple[int, bool] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold spaces and brackets, so fields are counted from its closing bracket.
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[19]), fields[0] not in {"Z", "X"}


async def _wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def mark() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, mark)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


def spawn_detached(arguments: Sequence[str | Path], *, stderr: int, oom_score_adjustment: int = 0) -> ProcessIdentity:
    """Start a program that outlives us: own session, no descriptor of ours but `stderr`, no core dumps.

    It is our child until we end, so somebody here must `reap` it. Raises `CommandFailed` when it cannot be started.
    """
    words = [str(argument) for argument in arguments]
    null = os.open(os.devnull, os.O_RDWR)
    redirects = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate((null, null, stderr))]
    # Python's own descriptors close on exec; this is for those of libraries that forgot.
    strays = [(os.POSIX_SPAWN_CLOSE, number) for number in _inheritable_descriptors()]
    try:
        pid = os.posix_spawnp(words[0], words, _DETACHED_ENVIRONMENT, file_actions=redirects + strays, setsid=True)
    except OSError as error:
        raise CommandFailed(f"{words[0]} could not be started: {error.strerror}") from error
    finally:
        os.close(null)
    # Nobody else collects this child, so its number stays its own until we `reap` it.
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    Path(f"/proc/{pid}/oom_score_adj").write_text(str(oom_score_adjustment))
    identity = identify(pid)
    assert identity is not None, "an unreaped child has an entry in /proc"
    return identity


def _inheritable_descriptors() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are wanted, not paths
        with contextlib.suppress(OSError):  # the descriptor of this very listing is gone by now
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found


def reap(pid: int) -> int | None:
    """Collect a child of ours that has ended and return its wait status; None when it is not ours or still runs."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if found == pid else None
