import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.guest import cpio

_names = st.text("abcdefghijklmnopqrstuvwxyzé-_.", min_size=1, max_size=12).filter(lambda name: name not in {".", ".."})


def _parse(archive: bytes) -> list[tuple[str, int, bytes]]:
    members: list[tuple[str, int, bytes]] = []
    position = 0
    while True:
        assert archive[position : position + 6] == b"070701"
        fields = [int(archive[position + 6 + 8 * n : position + 14 + 8 * n], 16) for n in range(13)]
        name = archive[position + 110 : position + 110 + fields[11] - 1].decode()
        start = (position + 110 + fields[11] + 3) // 4 * 4
        if name == "TRAILER!!!":
            return members
        members.append((name, fields[1], archive[start : start + fields[6]]))
        position = (start + fields[6] + 3) // 4 * 4


@given(st.dictionaries(_names, st.binary(max_size=64), max_size=8))
def test_members_come_back_in_order_with_their_bytes(contents: dict[str, bytes]) -> None:
    archive = cpio.write([cpio.file(name, content) for name, content in contents.items()])
    assert _parse(archive) == [(name, stat.S_IFREG | 0o644, content) for name, content in contents.items()]
    assert len(archive) % 512 == 0


@pytest.mark.parametrize("path", ["", "/etc/passwd", "a//b", "../a", "a/..", "./a", "a\0b", "x" * 5000])
def test_path_that_could_leave_the_root_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"path|fit"):
        cpio.file(path, b"")
