"""Builds small 64-bit ELF files: just enough of one for what reads headers, notes and sections."""

import struct


def build_elf(
    *, machine: int = 62, notes: bytes = b"", sections: dict[bytes, bytes] | None = None, interpreter: bool = False
) -> bytes:
    """Return an ELF file with a note segment, an interpreter segment and named sections, as asked for."""
    segments = [(4, notes)] if notes else []
    if interpreter:
        segments.append((3, b"/lib/ld.so\0"))
    body = bytearray()
    start = 64 + 56 * len(segments)
    programs = b""
    for kind, content in segments:
        programs += struct.pack("<IIQQQQQQ", kind, 4, start + len(body), 0, 0, len(content), len(content), 4)
        body += content
    names, headers = b"\0", struct.pack("<IIQQQQIIQQ", *[0] * 10)
    for name, content in (sections or {}).items():
        headers += struct.pack("<IIQQQQIIQQ", len(names), 1, 0, 0, start + len(body), len(content), 0, 0, 1, 0)
        names += name + b"\0"
        body += content
    headers += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, start + len(body), len(names), 0, 0, 1, 0)
    body += names
    count = 2 + len(sections or {})
    identification = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = identification + struct.pack(
        "<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, start + len(body), 0, 64, 56, len(segments), 64, count, count - 1
    )
    return header + programs + bytes(body) + headers


def build_note(owner: bytes, kind: int, description: bytes = b"\0\0\0\0") -> bytes:
    """Return one ELF note."""
    name = owner + b"\0"
    padded = name + bytes(-len(name) % 4)
    return struct.pack("<III", len(name), len(description), kind) + padded + description


def build_kernel() -> bytes:
    """Return a vmlinux that a monitor could enter, as far as its header tells."""
    return build_elf(notes=build_note(b"Linux", 257) + build_note(b"Xen", 18))


def build_module(depends: str) -> bytes:
    """Return a kernel module that depends on the comma-separated modules."""
    return build_elf(sections={b".text": b"\x90", b".modinfo": f"license=GPL\0depends={depends}\0name=x\0".encode()})
