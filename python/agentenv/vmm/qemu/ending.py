"""Why a QEMU machine ended: a pure decision from what was seen of the end."""

import os
import signal
from dataclasses import dataclass

from agentenv.vmm.base import EndCause, MachineEnd

_GAVE_UP_MARKS = ("Kernel panic - not syncing", "aenv-guest: fatal:")
_LINE_CHARACTERS = 300
# Signals by which somebody ends a process on purpose; any other one is the monitor's own failure.
_DELIBERATE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


@dataclass(frozen=True, slots=True)
class EndFacts:
    """What was seen of an end.

    `shutdown_reason` is the monitor's own word; `was_killed_by_us` means that we sent the signal before any such word.
    `wait_status` is None when the monitor was not our child. The texts are the ends of what was written.
    """

    shutdown_reason: str | None
    was_killed_by_us: bool
    wait_status: int | None
    console: str
    errors: str


def decide(facts: EndFacts) -> MachineEnd:
    """Return the cause, and one sentence with what supports it."""
    gave_up = _last_line(facts.console, _GAVE_UP_MARKS)
    match facts.shutdown_reason:
        case "guest-panic":
            return MachineEnd(EndCause.GUEST_PANIC, _because("the guest's kernel panicked", gave_up))
        case "guest-reset" | "guest-shutdown" if gave_up is not None:
            return MachineEnd(EndCause.GUEST_PANIC, _because("the guest gave up", gave_up))
        case "guest-reset":
            return MachineEnd(EndCause.GUEST_REBOOT, "the guest rebooted")
        case "guest-shutdown":
            return MachineEnd(EndCause.GUEST_SHUTDOWN, "the guest powered off")
    if facts.was_killed_by_us:
        return MachineEnd(EndCause.KILLED_BY_US, "the machine was killed on request")
    if facts.shutdown_reason in {"host-signal", "host-qmp-quit"}:
        detail = f"the monitor was told to end by another process ({facts.shutdown_reason})"
        return MachineEnd(EndCause.VMM_KILLED, _because(detail, _last_line(facts.errors)))
    return _decide_from_process(facts)


def _decide_from_process(facts: EndFacts) -> MachineEnd:
    errors = _last_line(facts.errors)
    status = facts.wait_status
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        cause = EndCause.VMM_KILLED if number in _DELIBERATE else EndCause.VMM_FAILED
        return MachineEnd(cause, _because(f"the monitor ended by {_signal_name(number)}", errors))
    if facts.shutdown_reason is not None:
        return MachineEnd(EndCause.VMM_FAILED, _because(f"the monitor gave up ({facts.shutdown_reason})", errors))
    if status is not None and os.WEXITSTATUS(status) != 0:
        return MachineEnd(
            EndCause.VMM_FAILED, _because(f"the monitor ended with code {os.WEXITSTATUS(status)}", errors)
        )
    how = "without a word" if status is not None else "and left its exit code to the process that had started it"
    return MachineEnd(EndCause.UNKNOWN, _because(f"the monitor ended {how}", errors))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(text: str, marks: tuple[str, ...] = ("",)) -> str | None:
    lines = [line.strip() for line in text.splitlines() if line.strip() and any(mark in line for mark in marks)]
    return lines[-1][:_LINE_CHARACTERS] if lines else None


def _because(what: str, line: str | None) -> str:
    return what if line is None else f"{what}: {line}"
