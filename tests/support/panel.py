"""The panel of a guest that obeys (tests/vm/vmm/test_init.rs): read and written in its memory, past all devices.

A thread watches the guest's heartbeat, which is the witness of how long it stood still.
"""

import ctypes
import os
import struct
import threading
import time
from typing import Self

from agentenv.base.clock import SystemClock
from agentenv.vmm.base import Machine
from agentenv.vmm.memory import GuestMemory
from agentenv.vmm.qemu.architecture import Architecture
from agentenv.vmm.qemu.machine import QemuMachine
from agentenv.vmm.qemu.ram import locate

_MAGIC = b"aenv-test panel of a guest, v1 \n"
_CHUNK_BYTES = 4 * 2**20
_WORD = struct.Struct("=Q")
_PATIENCE_SECONDS = 1.0
_HEARTBEAT, _WANTED, _DONE = 32, 40, 48


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_libc = ctypes.CDLL(None, use_errno=True)


def _transfer(call: str, pid: int, address: int, buffer: ctypes.Array[ctypes.c_char]) -> None:
    local = _Vector(ctypes.addressof(buffer), len(buffer))
    remote = _Vector(address, len(buffer))
    count = getattr(_libc, call)(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    if count != len(buffer):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Panel:
    """Reads and writes the panel of one guest."""

    def __init__(self, pid: int, address: int) -> None:
        self._pid = pid
        self._address = address
        self._buffer = ctypes.create_string_buffer(_WORD.size)

    @classmethod
    async def find(cls, machine: Machine, memory_bytes: int) -> "Panel":
        """Look for the panel in the whole memory of a guest."""
        assert isinstance(machine, QemuMachine)
        memory = await locate(machine._lines.control, machine.handle.process, Architecture.X86_64, memory_bytes)
        # More than one copy of the words may lie around: the panel is the one that beats.
        candidates = [cls(memory.process.pid, address) for address in _search(memory)]
        before = [panel._read(_HEARTBEAT) for panel in candidates]
        await SystemClock().sleep(0.1)
        (found,) = [panel for panel, beat in zip(candidates, before, strict=True) if panel._read(_HEARTBEAT) > beat]
        return found

    async def change(self, mib: int) -> None:
        """Have the guest change so much of its memory, and wait until it has."""
        done = self._read(_DONE)
        self._write(_WANTED, mib)
        while self._read(_DONE) == done:
            await SystemClock().sleep(0.005)

    def heartbeat(self) -> int:
        """Return the number of beats."""
        return self._read(_HEARTBEAT)

    def _read(self, offset: int) -> int:
        _transfer("process_vm_readv", self._pid, self._address + offset, self._buffer)
        return int(_WORD.unpack(self._buffer.raw)[0])

    def _write(self, offset: int, value: int) -> None:
        buffer = ctypes.create_string_buffer(_WORD.pack(value), _WORD.size)
        _transfer("process_vm_writev", self._pid, self._address + offset, buffer)


def _search(memory: GuestMemory) -> list[int]:
    found: list[int] = []
    buffer = ctypes.create_string_buffer(_CHUNK_BYTES)
    for start in range(memory.address, memory.address + memory.size_bytes, _CHUNK_BYTES):
        _transfer("process_vm_readv", memory.process.pid, start, buffer)
        content = buffer.raw
        at = content.find(_MAGIC)
        while at >= 0:
            if at % 4096 == 0:
                found.append(start + at)
            at = content.find(_MAGIC, at + 1)
    return found


class Witness:
    """Watches the heartbeat of a guest, and knows its longest pause."""

    def __init__(self, panel: Panel) -> None:
        self._panel = Panel(panel._pid, panel._address)
        self._is_over = threading.Event()
        self._longest_seconds = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A pause is seen at the beat that ends it.
        beat, deadline = self._panel.heartbeat(), time.perf_counter() + _PATIENCE_SECONDS
        while self._panel.heartbeat() <= beat + 1 and time.perf_counter() < deadline:
            self._is_over.wait(0.001)
        self._is_over.set()
        self._thread.join()

    @property
    def longest_ms(self) -> float:
        """The longest time between two beats."""
        return self._longest_seconds * 1000

    def _watch(self) -> None:
        beat, since = self._panel.heartbeat(), time.perf_counter()
        while not self._is_over.wait(0.0002):
            now_beat, now = self._panel.heartbeat(), time.perf_counter()
            if now_beat != beat:
                self._longest_seconds = max(self._longest_seconds, now - since)
                beat, since = now_beat, now
