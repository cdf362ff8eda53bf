"""An empty qcow2 file over a raw base: four clusters, of which three hold bookkeeping. Pure bytes, no files.

Written here because that costs a tenth of a millisecond, and `qemu-img create` twenty.
"""

import struct
from dataclasses import dataclass

CLUSTER_BYTES = 64 * 1024
_CLUSTER_BITS = 16
_MAGIC = 0x514649FB
_VERSION = 3
_REFCOUNT_ORDER = 4  # two bytes for each count
_BACKING_FORMAT = 0xE2792ACA
# magic, version, backing offset and length, cluster bits, size, encryption, L1 entries and offset, refcount table
# offset and clusters, snapshots and their offset, three feature masks, refcount order, header length
_HEADER = struct.Struct(">IIQIIQIIQQIIQQQQII")
_HEADER_BYTES = 104
_REFCOUNT_TABLE, _REFCOUNT_BLOCK, _L1_TABLE = 1, 2, 3
_CLUSTERS = 4
# One L1 entry leads to a table of as many clusters as fit in one; one cluster of L1 is enough for 4 TiB.
_BYTES_BY_L1_ENTRY = CLUSTER_BYTES // 8 * CLUSTER_BYTES
MAXIMUM_BYTES = CLUSTER_BYTES // 8 * _BYTES_BY_L1_ENTRY


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes at their place in a file that is zero everywhere else."""

    offset: int
    content: bytes


FILE_BYTES = _CLUSTERS * CLUSTER_BYTES


def empty_overlay(size_bytes: int, backing: bytes) -> list[Piece]:
    """Return what to write into `FILE_BYTES` of zeroes to make a disk of `size_bytes` over the raw file `backing`."""
    extension = struct.pack(">II8s", _BACKING_FORMAT, 3, b"raw") + bytes(8)
    backing_offset = _HEADER_BYTES + len(extension)
    header = _HEADER.pack(
        *(_MAGIC, _VERSION, backing_offset, len(backing), _CLUSTER_BITS, size_bytes, 0),
        *(-(-size_bytes // _BYTES_BY_L1_ENTRY), _L1_TABLE * CLUSTER_BYTES),
        *(_REFCOUNT_TABLE * CLUSTER_BYTES, 1, 0, 0, 0, 0, 0, _REFCOUNT_ORDER, _HEADER_BYTES),
    )
    return [
        Piece(0, header + extension + backing),
        Piece(_REFCOUNT_TABLE * CLUSTER_BYTES, struct.pack(">Q", _REFCOUNT_BLOCK * CLUSTER_BYTES)),
        Piece(_REFCOUNT_BLOCK * CLUSTER_BYTES, struct.pack(f">{_CLUSTERS}H", *[1] * _CLUSTERS)),
    ]


def read_size_bytes(head: bytes) -> int | None:
    """Return the size of the disk whose file begins with `head`, or None when that is no qcow2 of ours."""
    if len(head) < _HEADER.size:
        return None
    magic, version, _, _, bits, size, *_ = _HEADER.unpack_from(head)
    return size if (magic, version, bits) == (_MAGIC, _VERSION, _CLUSTER_BITS) else None
