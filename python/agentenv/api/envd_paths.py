"""The paths of the guest's daemon that belong to the host alone, in whatever spelling they come. Pure."""

from urllib.parse import unquote

_INTERNAL = frozenset({"init", "freeze", "unfreeze", "collapse", "fsfreeze", "fsthaw", "memory", "upgrade", "shutdown"})
# More layers of percent-encoding than any server undoes; what is still encoded then is refused.
_DECODINGS = 4


def is_internal_path(target: str) -> bool:
    """Return whether a request target could reach an internal route of the daemon.

    Judges every reading a lenient server might have: decoded repeatedly, slashes doubled or turned, dots resolved,
    case ignored, parameters cut off.
    """
    path = target.partition("?")[0].partition("#")[0]
    for _ in range(_DECODINGS):
        if _names_internal(path):
            return True
        decoded = unquote(path, errors="replace")
        if decoded == path:
            return False
        path = decoded
    return True


def _names_internal(path: str) -> bool:
    segments: list[str] = []
    for raw in path.replace("\\", "/").split("/"):
        segment = raw.partition(";")[0].partition("?")[0].partition("#")[0].strip("\0\t\r\n ").lower()
        if segment == "..":
            del segments[-1:]
        elif segment not in {"", "."}:
            segments.append(segment)
    return bool(segments) and segments[0] in _INTERNAL
