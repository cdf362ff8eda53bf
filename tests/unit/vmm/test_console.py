"""A console is kept printable, bounded, and by its end."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from agentenv.vmm.console import ConsoleLog, make_printable


def test_control_sequences_are_spelt_out() -> None:
    assert make_printable("\x1b[31mred\x07\r\nnext\tcolumn\x9b\u202e") == "\\x1b[31mred\\x07\nnext\tcolumn\\x9b\\u202e"
    assert make_printable("Grüße, 世界") == "Grüße, 世界"


@given(some.text())
def test_nothing_unprintable_survives(text: str) -> None:
    assert all(character.isprintable() or character in "\n\t" for character in make_printable(text))


def test_characters_cut_between_two_chunks_are_whole(tmp_path: Path) -> None:
    console = ConsoleLog(tmp_path / "console.log", 1024)
    for byte in "naïve ☃\r\n".encode():
        console.append(bytes([byte]))
    console.append(b"\xff")
    console.close()

    assert console.tail(100) == "naïve ☃\n\\xff"
    assert (tmp_path / "console.log").read_text() == "naïve ☃\n\\xff"


@given(chunks=some.lists(some.binary(max_size=300), max_size=40))
def test_files_stay_within_the_limit_and_hold_the_end(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("console") / "console.log"
    console = ConsoleLog(path, 256)
    for chunk in chunks:
        console.append(chunk)
    console.close()
    older = path.with_name("console.log.old")
    kept = (older.read_bytes() if older.exists() else b"") + path.read_bytes()

    assert len(kept) <= 256
    assert console.tail(len(kept)).encode().endswith(kept[-64:].lstrip(b"\x80\x81\x82\x83"))


def test_tail_is_bounded_in_bytes_and_never_cuts_a_character(tmp_path: Path) -> None:
    console = ConsoleLog(tmp_path / "console.log", 1024)
    console.append("☃☃☃".encode())
    console.close()

    assert [console.tail(limit) for limit in (0, 2, 3, 4, 100)] == ["", "", "☃", "☃", "☃☃☃"]


def test_next_process_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    first = ConsoleLog(tmp_path / "console.log", 64)
    first.append(b"a" * 30 + b"b" * 30)
    first.close()
    second = ConsoleLog(tmp_path / "console.log", 64)
    second.append(b"c")
    second.close()

    assert second.tail(100).endswith("bc")
    assert second.tail(100).startswith("a")


def test_link_in_place_of_the_log_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "console.log").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic link"):
        ConsoleLog(tmp_path / "console.log", 64)
    assert not (tmp_path / "elsewhere").exists()


def test_full_disk_costs_the_file_and_not_the_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = ConsoleLog(tmp_path / "console.log", 64)

    def refuse(_descriptor: int, _content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("agentenv.vmm.console.os.write", refuse)
        console.append(b"lost on disk, ")
    console.append(b"kept")
    console.close()

    assert console.tail(100) == "lost on disk, kept"
    assert (tmp_path / "console.log").read_text() == "kept"


def test_a_log_that_cannot_be_opened_anew_never_writes_into_the_file_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = ConsoleLog(tmp_path / "console.log", 64)
    console.append(b"a" * 30)

    def refuse(_path: Path) -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr("agentenv.vmm.console._open", refuse)
        console.append(b"b" * 30)
    with (tmp_path / "of-another").open("wb") as other:
        console.append(b"c")
        console.append(b"d" * 30)
        console.close()
        assert other.tell() == 0

    assert (tmp_path / "of-another").read_bytes() == b""
    assert (tmp_path / "console.log").read_text() == "d" * 30
    assert console.tail(3) == "ddd"
