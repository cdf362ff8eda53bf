"""How calls of `agentenv_core` behave: followed, cancelled, beside other threads, and with hostile files."""

import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agentenv_core as core
from support.layers import VECTORS, write_image

# Hashing so much takes seconds; the file is one hole.
_HUGE_BYTES = 8 << 30


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(_HUGE_BYTES)
    return path


def test_other_threads_run_while_a_call_works(huge: Path) -> None:
    token = core.CancellationToken()
    outcome: list[BaseException] = []

    def work() -> None:
        try:
            core.digest(huge, token=token)
        except core.CoreError as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    turns = 0
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        turns += 1
    # A call that held the interpreter would be done before this line.
    token.cancel()
    thread.join()
    assert turns > 1000
    assert [type(error) for error in outcome] == [core.Cancelled]


def test_a_token_that_was_cancelled_stays_so(huge: Path) -> None:
    token = core.CancellationToken()
    token.cancel()
    assert token.is_cancelled
    with pytest.raises(core.Cancelled):
        core.digest(huge, token=token)


def test_progress_is_told_seldom_and_nothing_after_the_cancellation(huge: Path) -> None:
    token = core.CancellationToken()
    heard: list[tuple[float, int, int]] = []

    def hear(done: int, total: int) -> None:
        heard.append((time.monotonic(), done, total))
        if len(heard) == 3:
            token.cancel()

    with pytest.raises(core.Cancelled):
        core.digest(huge, progress=hear, token=token)
    assert len(heard) == 3
    assert all(later[0] - earlier[0] >= 0.09 for earlier, later in itertools.pairwise(heard))
    assert [done for _, done, _ in heard] == sorted(done for _, done, _ in heard)
    assert {total for *_, total in heard} == {_HUGE_BYTES}


def test_what_a_progress_function_raises_ends_the_call(huge: Path) -> None:
    def complain(_done: int, _total: int) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        core.digest(huge, progress=complain)


def test_the_last_report_says_that_everything_is_done(tmp_path: Path) -> None:
    write_image(tmp_path / "raw", blocks=20)
    heard: list[tuple[int, int]] = []
    new = core.NewLayer(compression="lz4")
    core.commit(tmp_path / "raw", tmp_path / "layer", new=new, progress=lambda *report: heard.append(report))
    done, total = heard[-1]
    assert done == total > 0


def test_a_commit_that_is_cancelled_leaves_no_file(tmp_path: Path) -> None:
    write_image(tmp_path / "raw", blocks=2000)
    token = core.CancellationToken()
    token.cancel()
    with pytest.raises(core.Cancelled):
        core.commit(tmp_path / "raw", tmp_path / "layer", token=token)
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_no_file_is_ever_replaced(tmp_path: Path) -> None:
    write_image(tmp_path / "raw", blocks=2)
    core.commit(tmp_path / "raw", tmp_path / "layer")
    (tmp_path / "there").write_text("mine")
    makers: list[Callable[[Path], object]] = [
        lambda output: core.commit(tmp_path / "raw", output),
        lambda output: core.cat([tmp_path / "layer"], output),
        lambda output: core.flatten([tmp_path / "layer"], output),
        lambda output: core.merge([tmp_path / "layer"], output),
    ]
    for make in makers:
        with pytest.raises(core.FileExists, match=r"there: File exists$"):
            make(tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"


def test_two_at_once_give_one_file(tmp_path: Path) -> None:
    content = write_image(tmp_path / "raw", blocks=3000)
    outcomes: list[object] = []

    def work() -> None:
        try:
            outcomes.append(core.commit(tmp_path / "raw", tmp_path / "layer"))
        except core.FileExists as error:
            outcomes.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(type(one).__name__ for one in outcomes) == ["FileExists"] * 3 + ["WrittenLayer"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layer", "raw"]
    core.cat([tmp_path / "layer"], tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == content


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"layer_id": "x"}, core.InvalidRequest, "'x' is no UUID"),
        ({"compression": "gzip"}, core.InvalidRequest, "'gzip' is no compression"),
        ({"tag": "text"}, TypeError, "tag"),
        ({"unknown": 1}, TypeError, "unknown"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        core.NewLayer(**arguments)  # type: ignore[arg-type]  # wrong on purpose


def test_only_regular_files_are_read_and_nothing_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(core.InvalidRequest, match="is no regular file"):
            core.digest(path)
    with pytest.raises(core.FileMissing, match=r"cannot open .*/nothing: No such file or directory$"):
        core.inspect(tmp_path / "nothing")


def test_what_is_no_disk_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(bytes(513))
    (tmp_path / "empty").write_bytes(b"")
    for name in ("odd", "empty"):
        with pytest.raises(core.InvalidRequest, match="is no disk image"):
            core.commit(tmp_path / name, tmp_path / "layer")
    with pytest.raises(core.InvalidRequest, match="how large the disk is"):
        core.flatten([VECTORS / "data_and_zero.bin"], tmp_path / "layer")
    with pytest.raises(core.InvalidRequest, match="256 layers are more than 255"):
        core.cat([VECTORS / "empty_sealed.bin"] * 256, tmp_path / "raw")
    with pytest.raises(core.InvalidRequest, match="no layer was named"):
        core.merge([], tmp_path / "layer")


def test_a_name_cannot_steer_the_terminal_of_who_reads_the_error(tmp_path: Path) -> None:
    with pytest.raises(core.FileMissing) as caught:
        core.inspect(tmp_path / "\x1b[2Jevil\n")
    assert str(caught.value).endswith("?[2Jevil?: No such file or directory")


_SOUND = ["two_segments.bin", "rw_sealed_in_place.bin", "zfile_two_segments.bin", "tar_zfile_two_segments.bin"]


@given(name=st.sampled_from(_SOUND), edits=st.lists(st.tuples(st.integers(0), st.binary(min_size=1, max_size=16))))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_an_error_of_ours_or_a_valid_layer(tmp_path: Path, name: str, edits: list[tuple[int, bytes]]) -> None:
    content = bytearray((VECTORS / name).read_bytes())
    for place, piece in edits:
        at = place % len(content)
        content[at : at + len(piece)] = piece
    (tmp_path / "layer").write_bytes(content)
    (tmp_path / "raw").unlink(missing_ok=True)
    try:
        core.verify(tmp_path / "layer")
        # A size that was turned into terabytes is still a size: the file has holes.
        core.cat([tmp_path / "layer"], tmp_path / "raw")
    except (core.CorruptLayer, core.UnsupportedLayer, core.LayerTooLarge, core.FileFailed):
        assert not (tmp_path / "raw").exists()


@pytest.mark.parametrize("name", _SOUND[2:])
def test_every_flipped_bit_of_a_compressed_block_is_found(tmp_path: Path, name: str) -> None:
    sound = (VECTORS / name).read_bytes()
    start = 1536 + 512 if name.startswith("tar") else 512
    # Three blocks of 4 KiB and a rest, each followed by its checksum, lie behind the header.
    for at in range(start, start + 60):
        (tmp_path / "layer").write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(core.CorruptLayer, match=r"damaged at byte \d+"):
            core.verify(tmp_path / "layer")


def test_a_layer_without_checksums_is_known_by_its_digest(tmp_path: Path) -> None:
    content = bytearray((VECTORS / "two_segments.bin").read_bytes())
    sound = core.verify(VECTORS / "two_segments.bin")
    content[4096] ^= 1
    (tmp_path / "layer").write_bytes(content)
    damaged = core.verify(tmp_path / "layer")
    assert not damaged.description.has_checksums
    assert damaged.digest != sound.digest
