"""The way out of a terminal that answers no more: `~.` at the start of a line, as in ssh. Pure."""


class EscapeFilter:
    """Watches keys on their way to the sandbox."""

    def __init__(self) -> None:
        self._held = False
        self._at_line_start = True

    def feed(self, keys: bytes) -> tuple[bytes, bool]:
        """Return the keys to pass on, and whether the user asked to leave.

        A `~` at the start of a line is held back until the next key decides: `.` leaves, `~` sends one `~`.
        """
        passed = bytearray()
        for key in keys:
            if self._held:
                self._held = False
                if key == ord("."):
                    return bytes(passed), True
                passed += b"~"
                self._at_line_start = False
                if key == ord("~"):
                    continue
            if self._at_line_start and key == ord("~"):
                self._held = True
                continue
            passed.append(key)
            self._at_line_start = key in b"\r\n\x03"
        return bytes(passed), False
