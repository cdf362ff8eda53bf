"""The chunked transfer coding: a strict incremental decoder, and the encoder of one chunk. Pure."""

from enum import Enum, auto

from agentenv.proxy.errors import GuestAnswerBroken

LAST_CHUNK = b"0\r\n\r\n"
_LINE_LIMIT_BYTES = 4096
_TRAILER_LIMIT_BYTES = 16384
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")


def encode_chunk(payload: bytes) -> bytes:
    """Return `payload`, which must not be empty, as one chunk."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class _Expect(Enum):
    SIZE = auto()
    PAYLOAD = auto()
    PAYLOAD_END = auto()
    TRAILER = auto()


class ChunkedDecoder:
    """Takes the bytes of a chunked body as they come and gives back the payload.

    Extensions and trailers are dropped: they belong to one hop. Whatever follows the body is in `surplus`.
    """

    def __init__(self) -> None:
        self.is_finished = False
        self.surplus = b""
        self._expect = _Expect.SIZE
        self._remaining = 0
        self._partial = b""
        self._trailer_bytes = 0

    def feed(self, received: bytes) -> bytes:
        """Return the payload in `received`. Raises `GuestAnswerBroken` when it is not chunked coding."""
        pieces: list[bytes] = []
        position = 0
        end = len(received)
        while position < end and not self.is_finished:
            if self._expect is _Expect.PAYLOAD:
                piece = received[position : position + self._remaining]
                pieces.append(piece)
                position += len(piece)
                self._remaining -= len(piece)
                if self._remaining == 0:
                    self._expect = _Expect.PAYLOAD_END
                continue
            line_end = received.find(b"\n", position)
            if line_end < 0:
                self._hold(received[position:])
                break
            line = self._partial + received[position:line_end]
            self._partial = b""
            position = line_end + 1
            self._take_line(line.removesuffix(b"\r"))
        if self.is_finished:
            self.surplus = received[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _hold(self, rest: bytes) -> None:
        self._partial += rest
        if len(self._partial) > _LINE_LIMIT_BYTES:
            raise GuestAnswerBroken("the guest sent a chunk header that is too long")

    def _take_line(self, line: bytes) -> None:
        if self._expect is _Expect.SIZE:
            self._take_size(line)
        elif self._expect is _Expect.PAYLOAD_END:
            if line:
                raise GuestAnswerBroken("the guest sent a chunk longer than it said")
            self._expect = _Expect.SIZE
        elif not line:
            self.is_finished = True
        else:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _TRAILER_LIMIT_BYTES:
                raise GuestAnswerBroken("the guest sent trailers that are too long")

    def _take_size(self, line: bytes) -> None:
        digits = line.partition(b";")[0].rstrip(b" \t")
        if not 1 <= len(digits) <= 16 or not _HEX_DIGITS.issuperset(digits):
            raise GuestAnswerBroken("the guest sent a chunk without a size")
        self._remaining = int(digits, 16)
        self._expect = _Expect.PAYLOAD if self._remaining else _Expect.TRAILER
