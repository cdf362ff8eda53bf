"""Every way in which a machine can end has its cause."""

import signal

import pytest

from agentenv.vmm.base import EndCause
from agentenv.vmm.qemu.ending import EndFacts, decide

PANIC = "init: hello\n[ 1.0] Kernel panic - not syncing: Attempted to kill init!\n[ 1.1] CPU: 0\n"
FATAL = "aenv-guest: fatal: /dev/vda does not appear\n[ 1.0] reboot: Power down\n"
CALM = "login:\n"


@pytest.mark.parametrize(
    "reason, killed, status, console, errors, cause, detail",
    [
        ("guest-panic", False, 0, CALM, "", EndCause.GUEST_PANIC, "the guest's kernel panicked"),
        ("guest-reset", False, 0, PANIC, "", EndCause.GUEST_PANIC, "Attempted to kill init!"),
        ("guest-reset", False, 0, CALM, "", EndCause.GUEST_REBOOT, "the guest rebooted"),
        ("guest-shutdown", False, 0, CALM, "", EndCause.GUEST_SHUTDOWN, "the guest powered off"),
        ("guest-shutdown", False, 0, FATAL, "", EndCause.GUEST_PANIC, "/dev/vda does not appear"),
        ("guest-shutdown", True, 9, CALM, "", EndCause.GUEST_SHUTDOWN, "the guest powered off"),
        (None, True, 9, CALM, "", EndCause.KILLED_BY_US, "on request"),
        (None, True, 9, PANIC, "", EndCause.KILLED_BY_US, "on request"),
        ("host-signal", False, 0, CALM, "terminating on signal 15", EndCause.VMM_KILLED, "signal 15"),
        ("host-qmp-quit", False, 0, CALM, "", EndCause.VMM_KILLED, "host-qmp-quit"),
        ("host-error", False, 0, CALM, "bad things", EndCause.VMM_FAILED, "bad things"),
        (None, False, signal.SIGKILL, CALM, "", EndCause.VMM_KILLED, "SIGKILL"),
        (None, False, signal.SIGSYS, CALM, "", EndCause.VMM_FAILED, "SIGSYS"),
        (None, False, signal.SIGSEGV, CALM, "last words", EndCause.VMM_FAILED, "SIGSEGV: last words"),
        (None, False, 40, CALM, "", EndCause.VMM_FAILED, "signal 40"),
        (None, False, 1 << 8, CALM, "qemu: no\n\n", EndCause.VMM_FAILED, "code 1: qemu: no"),
        (None, False, 0, CALM, "", EndCause.UNKNOWN, "without a word"),
        (None, False, None, CALM, "", EndCause.UNKNOWN, "exit code"),
    ],
)
def test_cause_and_its_support(
    reason: str | None, killed: bool, status: int | None, console: str, errors: str, cause: EndCause, detail: str
) -> None:
    end = decide(
        EndFacts(shutdown_reason=reason, was_killed_by_us=killed, wait_status=status, console=console, errors=errors)
    )

    assert end.cause is cause
    assert detail in end.detail


def test_detail_is_bounded() -> None:
    end = decide(EndFacts("guest-reset", False, 0, "Kernel panic - not syncing: " + "x" * 10_000, ""))

    assert len(end.detail) < 400
