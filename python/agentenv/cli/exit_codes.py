"""What the exit codes of `aenv` mean. Pure."""

import signal

from agentenv.client.base import Ended

FAILURE = 1
COMMAND_TIMED_OUT = 124
INTERRUPTED = 128 + signal.SIGINT
_SIGNAL_BASE = 128
_UNKNOWN_SIGNAL = 255

# The names in which daemons report signals (e2b-contract 4.5, Go's words).
_NUMBERS = {
    "hangup": signal.SIGHUP,
    "interrupt": signal.SIGINT,
    "quit": signal.SIGQUIT,
    "illegal instruction": signal.SIGILL,
    "trace/breakpoint trap": signal.SIGTRAP,
    "aborted": signal.SIGABRT,
    "bus error": signal.SIGBUS,
    "floating point exception": signal.SIGFPE,
    "killed": signal.SIGKILL,
    "user defined signal 1": signal.SIGUSR1,
    "segmentation fault": signal.SIGSEGV,
    "user defined signal 2": signal.SIGUSR2,
    "broken pipe": signal.SIGPIPE,
    "alarm clock": signal.SIGALRM,
    "terminated": signal.SIGTERM,
    "stack fault": signal.SIGSTKFLT,
    "CPU time limit exceeded": signal.SIGXCPU,
    "file size limit exceeded": signal.SIGXFSZ,
    "virtual timer expired": signal.SIGVTALRM,
    "profiling timer expired": signal.SIGPROF,
    "I/O possible": signal.SIGIO,
    "power failure": signal.SIGPWR,
    "bad system call": signal.SIGSYS,
}


def of_end(end: Ended) -> int:
    """Return the exit code that stands for the end of a remote process, as a shell would give it."""
    if end.signal is None:
        return end.exit_code & 0xFF
    number: int | None = _NUMBERS.get(end.signal)
    if number is None:
        word = end.signal.removeprefix("signal ")
        number = int(word) if word.isascii() and word.isdigit() and len(word) < 3 else None
    return _UNKNOWN_SIGNAL if number is None else of_signal(number)


def of_signal(number: int) -> int:
    """Return the exit code of a program that the signal `number` ended."""
    return _SIGNAL_BASE + number
