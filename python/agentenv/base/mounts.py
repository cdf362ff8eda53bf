"""The mount table of this process. Reads only, and touches no mounted file system, which may be one that hangs."""

from dataclasses import dataclass
from pathlib import Path

_TABLE = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Mount:
    """Something mounted on `point`. `number` is its own for as long as it is mounted."""

    number: int
    point: Path


def read() -> list[Mount]:
    """Return what is mounted now, in the order of mounting."""
    return parse(_TABLE.read_text(errors="surrogateescape"))


def parse(table: str) -> list[Mount]:
    """Return the mounts in the text of a mountinfo file; lines that are none are left out."""
    rows = (line.split(" ") for line in table.splitlines() if line.count(" ") >= 5)
    return [Mount(int(row[0]), Path(_unescape(row[4]))) for row in rows if row[0].isdecimal()]


def below(*directories: Path) -> list[Path]:
    """Return the mount points at or below `directories`, the last mounted first."""
    points = [mount.point for mount in reversed(read())]
    return [point for point in points if any(point.is_relative_to(directory) for directory in directories)]


def _unescape(text: str) -> str:
    """Undo the octal escapes by which the kernel writes blanks and backslashes."""
    for character in " \t\n\\":
        text = text.replace(f"\\{ord(character):03o}", character)
    return text
