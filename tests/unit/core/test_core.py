"""The module `agentenv_core`: golden vectors, whole circles, and what it refuses."""

import hashlib
import os
from pathlib import Path
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agentenv_core as core
from support.layers import BLOCK_BYTES, VECTORS, write_image


def test_a_wrapped_layer_says_what_it_is() -> None:
    layer = core.inspect(VECTORS / "tar_zfile_two_segments.bin")
    assert (layer.is_archive, layer.compression, layer.block_bytes, layer.has_checksums) == (True, "lz4", 4096, True)
    assert (layer.layer_id, layer.tag) == ("000000A1-0000-4000-8000-000000000001", b"two")
    assert (layer.file_bytes, layer.layer_bytes, layer.virtual_size_bytes) == (4096, 13824, 1 << 20)
    assert (layer.entries, layer.data_bytes, layer.zeroed_bytes) == (2, 1536, 0)
    assert layer == core.inspect(VECTORS / "tar_zfile_two_segments.bin")


def test_a_plain_layer_inherits_its_size_and_has_no_checksums() -> None:
    layer = core.inspect(VECTORS / "data_and_zero.bin")
    assert (layer.is_archive, layer.compression, layer.block_bytes, layer.has_checksums) == (False, None, None, False)
    assert (layer.virtual_size_bytes, layer.zeroed_bytes > 0) == (None, True)


def test_commit_and_cat_give_the_image_back(tmp_path: Path) -> None:
    content = write_image(tmp_path / "raw", blocks=700)
    written = core.commit(tmp_path / "raw", tmp_path / "layer")
    assert core.cat([tmp_path / "layer"], tmp_path / "again") == len(content)
    assert (tmp_path / "again").read_bytes() == content
    nonzero = sum(any(content[at : at + BLOCK_BYTES]) for at in range(0, len(content), BLOCK_BYTES))
    assert written.data_bytes == nonzero * BLOCK_BYTES
    assert written.digest == "sha256:" + hashlib.sha256((tmp_path / "layer").read_bytes()).hexdigest()
    assert written.file_bytes == written.layer_bytes == (tmp_path / "layer").stat().st_size


_PIECES = st.lists(st.tuples(st.sampled_from(["data", "zeros", "hole"]), st.integers(1, 40)), min_size=1, max_size=12)


@given(pieces=_PIECES, compression=st.sampled_from([None, "lz4", "zstd"]), archive=st.booleans(), hide=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_image_comes_back_from_any_wrapping(
    tmp_path: Path, pieces: list[tuple[str, int]], compression: str | None, archive: bool, hide: bool
) -> None:
    for name in ("raw", "layer", "again"):
        (tmp_path / name).unlink(missing_ok=True)
    with (tmp_path / "raw").open("wb") as file:
        for number, (kind, sectors) in enumerate(pieces):
            if kind == "hole":
                file.seek(sectors * 512, os.SEEK_CUR)
            else:
                file.write(bytes([number + 1 if kind == "data" else 0]) * (sectors * 512))
        file.truncate(file.tell())
    new = core.NewLayer(compression=compression, archive=archive)  # type: ignore[arg-type]  # a word of the list above
    written = core.commit(tmp_path / "raw", tmp_path / "layer", new=new, hide_below=hide)
    core.cat([tmp_path / "layer"], tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "raw").read_bytes()
    assert core.verify(tmp_path / "layer").digest == written.digest == core.digest(tmp_path / "layer")


def test_holes_and_written_zeros_give_the_same_layer(tmp_path: Path) -> None:
    content = write_image(tmp_path / "sparse", blocks=300)
    (tmp_path / "full").write_bytes(content)
    for hide in (False, True):
        sparse = core.commit(tmp_path / "sparse", tmp_path / f"a{hide}", hide_below=hide)
        full = core.commit(tmp_path / "full", tmp_path / f"b{hide}", hide_below=hide)
        assert sparse == full


def test_a_layer_over_others_hides_or_shows_what_is_below(tmp_path: Path) -> None:
    (tmp_path / "low.raw").write_bytes(b"l" * 8 * BLOCK_BYTES)
    (tmp_path / "high.raw").write_bytes(bytes(4 * BLOCK_BYTES) + b"h" * 4 * BLOCK_BYTES)
    core.commit(tmp_path / "low.raw", tmp_path / "low")
    core.commit(tmp_path / "high.raw", tmp_path / "high")
    core.commit(tmp_path / "high.raw", tmp_path / "hiding", hide_below=True)
    core.cat([tmp_path / "low", tmp_path / "high"], tmp_path / "shown")
    core.cat([tmp_path / "low", tmp_path / "hiding"], tmp_path / "hidden")
    assert (tmp_path / "shown").read_bytes() == b"l" * 4 * BLOCK_BYTES + b"h" * 4 * BLOCK_BYTES
    assert (tmp_path / "hidden").read_bytes() == (tmp_path / "high.raw").read_bytes()


def test_flattening_gives_the_layer_of_the_whole_disk(tmp_path: Path) -> None:
    for number in range(3):
        write_image(tmp_path / f"{number}.raw", blocks=200, seed=number)
        core.commit(tmp_path / f"{number}.raw", tmp_path / f"{number}", hide_below=number == 2)
    stack = [tmp_path / "0", tmp_path / "1", tmp_path / "2"]
    core.cat(stack, tmp_path / "disk")
    assert core.flatten(stack, tmp_path / "flat") == core.commit(tmp_path / "disk", tmp_path / "committed")
    assert (tmp_path / "flat").read_bytes() == (tmp_path / "committed").read_bytes()


def test_merging_the_upper_layers_changes_nothing(tmp_path: Path) -> None:
    for number in range(3):
        write_image(tmp_path / f"{number}.raw", blocks=200, seed=number + 10)
        core.commit(tmp_path / f"{number}.raw", tmp_path / f"{number}", hide_below=number == 1)
    stack = [tmp_path / "0", tmp_path / "1", tmp_path / "2"]
    merged = core.merge(stack[1:], tmp_path / "merged")
    assert merged.virtual_size_bytes == 200 * BLOCK_BYTES
    core.cat(stack, tmp_path / "disk")
    core.cat([tmp_path / "0", tmp_path / "merged"], tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "disk").read_bytes()


def test_what_takes_the_place_of_layers_is_known_by_their_names(tmp_path: Path) -> None:
    names = [str(UUID(int=number + 1)).upper() for number in range(3)]
    for number, name in enumerate(names):
        write_image(tmp_path / f"{number}.raw", blocks=8, seed=number)
        below = names[number - 1] if number else None
        core.commit(
            tmp_path / f"{number}.raw", tmp_path / f"{number}", new=core.NewLayer(layer_id=name, parent_id=below)
        )
    core.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "merged")
    core.merge([tmp_path / "1", tmp_path / "2"], tmp_path / "renamed", new=core.NewLayer(layer_id=names[0]))
    merged = core.inspect(tmp_path / "merged")
    assert (merged.layer_id, merged.parent_id) == (names[2], names[0])
    assert core.inspect(tmp_path / "renamed").layer_id == names[0]


def test_a_pair_is_sealed_in_place(tmp_path: Path) -> None:
    for part in ("data", "index"):
        (tmp_path / part).write_bytes((VECTORS / f"rw_{part}.bin").read_bytes())
    core.seal(tmp_path, data="data", index="index", output="sealed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sealed"]
    core.cat([tmp_path / "sealed"], tmp_path / "ours")
    core.cat([VECTORS / "rw_sealed_in_place.bin"], tmp_path / "theirs")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_identity_and_tag_are_written(tmp_path: Path) -> None:
    write_image(tmp_path / "raw", blocks=4)
    new = core.NewLayer(layer_id="000000a1-0000-4000-8000-000000000001", tag=b"a tag")
    core.commit(tmp_path / "raw", tmp_path / "layer", new=new)
    layer = core.inspect(tmp_path / "layer")
    assert (layer.layer_id, layer.parent_id, layer.tag) == ("000000A1-0000-4000-8000-000000000001", None, b"a tag")
