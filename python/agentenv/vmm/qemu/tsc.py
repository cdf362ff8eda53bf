"""The frequency of this host's time stamp counter, which an emulated x86 guest is told instead of measuring it."""

import re
from pathlib import Path

_BOGOMIPS = re.compile(r"^bogomips\s*:\s*(\d+\.\d+)$", re.MULTILINE)
_FLAGS = re.compile(r"^flags\s*:(.*)$", re.MULTILINE)


def read_tsc_khz(path: Path = Path("/proc/cpuinfo")) -> int | None:
    """Return the frequency in kHz, or None where the kernel does not say one that can be trusted."""
    return parse_tsc_khz(path.read_text(encoding="utf-8", errors="replace"))


def parse_tsc_khz(cpuinfo: str) -> int | None:
    """Return the frequency that a /proc/cpuinfo tells.

    The kernel derives its delay loop from the counter, so `bogomips` is twice the frequency in MHz, whatever speed
    the cores run at just now. That holds only for a counter that is independent of that speed.
    """
    flags, bogomips = _FLAGS.search(cpuinfo), _BOGOMIPS.search(cpuinfo)
    if flags is None or bogomips is None or "constant_tsc" not in flags[1].split():
        return None
    khz = round(float(bogomips[1]) * 500)
    return khz if khz >= 100_000 else None
