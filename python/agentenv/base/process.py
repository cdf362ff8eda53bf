"""Child processes: short commands with a deadline, and long-lived ones that outlive us and can be found again."""

import asyncio
import contextlib
import errno
import os
import select
import signal
from collections.abc import Iterator, Mapping, Sequence
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
    source = None if stdin is None else _in_memory(stdin)
    try:
        child = await asyncio.create_subprocess_exec(  # noqa: TID251 - this is the one place
            *map(str, arguments),
            stdin=asyncio.subprocess.DEVNULL if source is None else source,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=None if environment is None else dict(environment),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(f"{name} could not be started: {error.strerror or error}") from error
    finally:
        if source is not None:
            os.close(source)
    try:
        async with asyncio.timeout(timeout_seconds):
            stdout, stderr = await child.communicate()
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


def _in_memory(content: bytes) -> int:
    """Return a descriptor to read `content` from. Pipes are sockets on uvloop, and nft cannot open those by name."""
    descriptor = os.memfd_create("stdin")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


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
        with self._pinned() as descriptor:
            return descriptor is not None and not _is_readable(descriptor)

    def kill(self) -> None:
        """Send SIGKILL to this very process; nothing happens when it has ended."""
        with self._pinned() as descriptor, contextlib.suppress(ProcessLookupError):
            if descriptor is not None:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)

    async def wait_ended(self) -> None:
        """Return when this process has ended, with all of its threads; it need not be our child."""
        with self._pinned() as descriptor:
            if descriptor is not None:
                await _wait_readable(descriptor)

    @contextlib.contextmanager
    def _pinned(self) -> Iterator[int | None]:
        """Lend a descriptor that can only mean this very process, or None when it is gone and collected.

        The descriptor is opened first and the start compared afterwards, so the number cannot change hands in between.
        It becomes readable when the last thread has ended; the state in /proc is that of the first thread alone.
        """
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError as error:
            if error.errno not in {errno.ESRCH, errno.EINVAL}:
                raise
            yield None
            return
        try:
            yield descriptor if identify(self.pid) == self else None
        finally:
            os.close(descriptor)


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process that has this number now, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may hold spaces and brackets, so fields are counted from its closing bracket.
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessIdentity(pid, int(fields[19]))


def _is_readable(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


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


def spawn_detached(arguments: Sequence[str | Path], *, stderr: int, handed_over: Sequence[int] = ()) -> ProcessIdentity:
    """Start a program that outlives us: own session, small environment, no descriptor of ours but `stderr`.

    The descriptors in `handed_over` become its 3, 4, and so on; the caller keeps and closes its own copies.
    It is our child until we end, so somebody here must `reap` it. Raises `CommandFailed` when it cannot be started.
    """
    words = [str(argument) for argument in arguments]
    null = os.open(os.devnull, os.O_RDWR)
    # Python's own descriptors close on exec; this is for those of libraries that forgot.
    actions: list[tuple[int, ...]] = [(os.POSIX_SPAWN_CLOSE, number) for number in _inheritable_descriptors()]
    wanted = (null, null, stderr, *handed_over)
    # By way of high numbers, because a target may be the number of a source that is still to come.
    above = max(wanted) + len(wanted) + 1
    actions += [(os.POSIX_SPAWN_DUP2, source, above + place) for place, source in enumerate(wanted)]
    actions += [(os.POSIX_SPAWN_DUP2, above + place, place) for place in range(len(wanted))]
    actions += [(os.POSIX_SPAWN_CLOSE, above + place) for place in range(len(wanted))]
    try:
        pid = os.posix_spawnp(words[0], words, _DETACHED_ENVIRONMENT, file_actions=actions, setsid=True)
    except OSError as error:
        raise CommandFailed(f"{words[0]} could not be started: {error.strerror}") from error
    finally:
        os.close(null)
    identity = identify(pid)
    assert identity is not None, "nobody else collects this child, so it has an entry in /proc"
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
