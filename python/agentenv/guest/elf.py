"""Reads the few parts of 64-bit ELF files that guest kernels and their modules are judged by. Total and bounded."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_NOTE = struct.Struct("<III")
_PT_NOTE = 4
_LARGEST_PART = 1 << 20


class NotElf(ValueError):
    """The file is not a 64-bit little-endian ELF file, or it is cut short."""


@dataclass(frozen=True, slots=True)
class Header:
    """Where things are in an ELF file."""

    machine: int
    program_offset: int
    program_count: int
    section_offset: int
    section_count: int
    names_index: int


def read_header(file: BinaryIO) -> Header:
    """Return the header. Raises `NotElf`."""
    fields = _HEADER.unpack(_read(file, 0, _HEADER.size))
    magic, word_class, byte_order = fields[:3]
    if magic != b"\x7fELF" or word_class != 2 or byte_order != 1:
        raise NotElf("no 64-bit little-endian ELF file")
    _, machine, _, _, program_offset, section_offset, _, _, _, program_count, _, section_count, names_index = fields[4:]
    return Header(machine, program_offset, program_count, section_offset, section_count, names_index)


def read_section(file: BinaryIO, name: bytes) -> bytes | None:
    """Return the content of the section called `name`, or None. Raises `NotElf`."""
    header = read_header(file)
    if header.names_index >= header.section_count:
        return None
    table = _read(file, header.section_offset, header.section_count * _SECTION.size)
    sections = list(_SECTION.iter_unpack(table))
    names = _read(file, sections[header.names_index][4], sections[header.names_index][5])
    for section in sections:
        if names[section[0] : section[0] + len(name) + 1] == name + b"\0":
            return _read(file, section[4], section[5])
    return None


def has_segment(file: BinaryIO, kind: int) -> bool:
    """Return whether there is a program segment of this kind. Raises `NotElf`."""
    return any(segment[0] == kind for segment in _segments(file))


def has_note(file: BinaryIO, owner: bytes, kind: int) -> bool:
    """Return whether a program segment holds the note `kind` of `owner`. Raises `NotElf`."""
    return any(
        segment[0] == _PT_NOTE and (owner, kind) in _notes(_read(file, segment[2], segment[5]))
        for segment in _segments(file)
    )


def _segments(file: BinaryIO) -> Iterator[tuple[int, ...]]:
    header = read_header(file)
    table = _read(file, header.program_offset, header.program_count * _PROGRAM.size)
    return _PROGRAM.iter_unpack(table)


def _notes(content: bytes) -> Iterator[tuple[bytes, int]]:
    position = 0
    while position + _NOTE.size <= len(content):
        name_size, description_size, kind = _NOTE.unpack_from(content, position)
        position += _NOTE.size
        yield content[position : position + name_size].rstrip(b"\0"), kind
        position += (name_size + 3) // 4 * 4 + (description_size + 3) // 4 * 4


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    if size > _LARGEST_PART or offset >= 1 << 40:
        raise NotElf("a part of the ELF file is implausibly large")
    file.seek(offset)
    content = file.read(size)
    if len(content) != size:
        raise NotElf("the ELF file is cut short")
    return content
