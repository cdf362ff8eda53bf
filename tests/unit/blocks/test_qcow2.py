"""The overlay's bytes keep the promises of the format."""

import struct

from hypothesis import given
from hypothesis import strategies as some

from agentenv.blocks import qcow2


@given(sectors=some.integers(1, qcow2.MAXIMUM_BYTES // 512), backing=some.binary(min_size=1, max_size=1023))
def test_size_is_read_back_and_pieces_stay_inside_their_clusters(sectors: int, backing: bytes) -> None:
    pieces = qcow2.empty_overlay(sectors * 512, backing)

    assert qcow2.read_size_bytes(pieces[0].content) == sectors * 512
    for piece in pieces:
        assert piece.offset % qcow2.CLUSTER_BYTES == 0
        assert len(piece.content) <= qcow2.CLUSTER_BYTES


def test_backing_name_is_where_the_header_says() -> None:
    head = qcow2.empty_overlay(1024, b"/images/base.ext4")[0].content

    offset, length = struct.unpack_from(">QI", head, 8)
    assert head[offset : offset + length] == b"/images/base.ext4"


def test_foreign_bytes_have_no_size() -> None:
    good = qcow2.empty_overlay(1024, b"base")[0].content

    assert qcow2.read_size_bytes(b"") is None
    assert qcow2.read_size_bytes(good[:50]) is None
    assert qcow2.read_size_bytes(b"QFI\xfa" + good[4:]) is None
    assert qcow2.read_size_bytes(good[:4] + b"\0\0\0\2" + good[8:]) is None
