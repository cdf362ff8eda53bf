"""Forgets connections, over ctnetlink. Blocks; works in the calling thread's namespace.

Spoken by hand because the messages are few and an entry can be deleted by echoing the kernel's own bytes,
whatever its protocol.
"""

import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Self

_NETLINK_NETFILTER = 12
_DELETE = (1 << 8) | 2
_GET = (1 << 8) | 1
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_ERROR, _DONE = 2, 3
_NESTED = 0x8000
_TYPE_MASK = 0x3FFF
_TUPLE_ORIGINAL, _ID, _ZONE, _FILTER = 1, 12, 18, 25
_TUPLE_IP, _SOURCE, _DESTINATION = 1, 1, 2
_FILTER_ORIGINAL_FLAGS = 1
# Bits of the filter's flags: which parts of the tuple the kernel compares.
_SOURCE_FLAG, _DESTINATION_FLAG = 1 << 0, 1 << 1
_HEADER = struct.Struct("=IHHII")
_FAMILY = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
_RECEIVE_BYTES = 1 << 17
_TIMEOUT_SECONDS = 5.0


def forget_all() -> None:
    """Forget every connection of the namespace."""
    with _Conversation() as conversation:
        conversation.ask(_DELETE, b"")


def forget(address: IPv4Address) -> int:
    """Forget every connection that `address` began or that was begun to it; return how many there were."""
    with _Conversation() as conversation:
        keys = [
            key
            for kind, flag in ((_SOURCE, _SOURCE_FLAG), (_DESTINATION, _DESTINATION_FLAG))
            for key in conversation.find(kind, flag, address.packed)
        ]
        for key in keys:
            conversation.ask(_DELETE, key, gone_is_fine=True)
    return len(keys)


class _Conversation:
    """One netlink socket, one question at a time."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
        self._socket.settimeout(_TIMEOUT_SECONDS)
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, message: int, attributes: bytes, *, gone_is_fine: bool = False) -> None:
        """Send a request and read its acknowledgement."""
        self._send(message, _REQUEST | _ACK, attributes)
        try:
            for _ in self._answers():
                pass
        except FileNotFoundError:
            if not gone_is_fine:
                raise

    def find(self, kind: int, flag: int, address: bytes) -> Iterator[bytes]:
        """Yield the keys of the connections whose original tuple has `address` at `kind`."""
        wanted = _attribute(_TUPLE_ORIGINAL | _NESTED, _attribute(_TUPLE_IP | _NESTED, _attribute(kind, address)))
        chosen = _attribute(_FILTER | _NESTED, _attribute(_FILTER_ORIGINAL_FLAGS, struct.pack("=I", flag)))
        self._send(_GET, _REQUEST | _DUMP, wanted + chosen)
        for body in self._answers():
            attributes = dict(_parse(body[_FAMILY.size :]))
            original = attributes.get(_TUPLE_ORIGINAL, b"")
            # Checked again because a kernel that does not know the filter answers with everything.
            if dict(_parse(dict(_parse(original)).get(_TUPLE_IP, b""))).get(kind) == address:
                yield b"".join(
                    _attribute(number | (_NESTED if number == _TUPLE_ORIGINAL else 0), attributes[number])
                    for number in (_TUPLE_ORIGINAL, _ID, _ZONE)
                    if number in attributes
                )

    def _send(self, message: int, flags: int, attributes: bytes) -> None:
        self._sequence += 1
        body = _FAMILY.pack(socket.AF_INET, 0, 0) + attributes
        self._socket.sendto(_HEADER.pack(_HEADER.size + len(body), message, flags, self._sequence, 0) + body, (0, 0))

    def _answers(self) -> Iterator[bytes]:
        while True:
            received = self._socket.recv(_RECEIVE_BYTES)
            while len(received) >= _HEADER.size:
                length, message, _, sequence, _ = _HEADER.unpack_from(received)
                body, received = received[_HEADER.size : length], received[_aligned(length) :]
                if sequence != self._sequence:
                    continue
                if message == _ERROR:
                    (code,) = struct.unpack_from("=i", body)
                    if code:
                        raise OSError(-code, os.strerror(-code))
                    return
                if message == _DONE:
                    return
                yield body


def _attribute(number: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, number) + value + bytes(_aligned(length) - length)


def _parse(raw: bytes) -> Iterator[tuple[int, bytes]]:
    while len(raw) >= _ATTRIBUTE.size:
        length, number = _ATTRIBUTE.unpack_from(raw)
        if length < _ATTRIBUTE.size:
            return
        yield number & _TYPE_MASK, raw[_ATTRIBUTE.size : length]
        raw = raw[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
