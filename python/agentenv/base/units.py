"""Sizes in the units that names promise."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


def format_bytes(count: float) -> str:
    """Return `count` bytes as people read them: `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_seconds(seconds: float) -> str:
    """Return a duration as people read it: `12 ms`, `3.4 s`, `2 min 5 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
