"""The framing of Connect streams: one flag byte, a big-endian length, a JSON payload. Pure; does no I/O."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from agentenv.client.errors import AnswerInvalid

# A daemon sends pieces of 32 KiB; whoever announces more than this wants our memory, not our attention.
PAYLOAD_BYTES_LIMIT = 4 * 1024 * 1024
_HEADER = struct.Struct(">BI")


class EnvelopeKind(IntEnum):
    """What the flag byte says; the compressed flag is never negotiated and so never valid."""

    MESSAGE = 0
    END = 2


@dataclass(frozen=True, slots=True)
class Envelope:
    """One frame of a stream."""

    kind: EnvelopeKind
    payload: bytes


def encode(payload: bytes) -> bytes:
    """Return `payload` as a message envelope."""
    return _HEADER.pack(EnvelopeKind.MESSAGE, len(payload)) + payload


class EnvelopeDecoder:
    """Cuts a stream of bytes into envelopes, however the network sliced it."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_between_envelopes(self) -> bool:
        """Whether no envelope is cut in half right now."""
        return not self._buffer

    def feed(self, chunk: bytes) -> list[Envelope]:
        """Take the next bytes and return the envelopes that are whole now."""
        self._buffer += chunk
        envelopes: list[Envelope] = []
        position = 0
        while len(self._buffer) - position >= _HEADER.size:
            flags, length = _HEADER.unpack_from(self._buffer, position)
            kind = _kind(flags, length)
            end = position + _HEADER.size + length
            if len(self._buffer) < end:
                break
            envelopes.append(Envelope(kind, bytes(self._buffer[position + _HEADER.size : end])))
            position = end
        del self._buffer[:position]
        return envelopes


def _kind(flags: int, length: int) -> EnvelopeKind:
    if length > PAYLOAD_BYTES_LIMIT:
        raise AnswerInvalid(f"a frame of the stream announces {length} bytes, more than {PAYLOAD_BYTES_LIMIT}")
    try:
        return EnvelopeKind(flags)
    except ValueError:
        raise AnswerInvalid(f"a frame of the stream has the unknown flags {flags:#04x}") from None
