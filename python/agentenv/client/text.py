"""Text from the other side, made safe to show. A guest's words must not steer the user's terminal."""

_SHOWN_CHARACTERS = 500


def printable(text: str, limit: int = _SHOWN_CHARACTERS) -> str:
    """Return `text` on one line, without control characters, cut at `limit` characters."""
    shown = "".join(character if character.isprintable() else " " for character in text[: limit + 1])
    return shown[: limit - 1] + "…" if len(text) > limit else shown
