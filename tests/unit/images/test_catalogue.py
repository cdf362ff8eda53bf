import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.base.aio import BlockingPool
from agentenv.base.errors import Kind
from agentenv.images import manifest
from agentenv.images.catalogue import DirectoryCatalogue
from agentenv.images.errors import ImageDamaged, TemplateNotFound
from agentenv.images.manifest import ImageManifest

ID = "abcdefghij0123456789"


@pytest.fixture
def pool() -> Iterator[BlockingPool]:
    pool = BlockingPool("test", 1)
    yield pool
    pool.close()


def _publish(images: Path, template_id: str = ID, *names: str) -> Path:
    directory = images / template_id
    directory.mkdir(parents=True)
    (directory / "disk-1.ext4").write_bytes(bytes(16))
    record = ImageManifest(
        template_id=template_id,
        names=names,
        disk_file="disk-1.ext4",
        disk_size_bytes=16,
        vcpus=2,
        memory_mib=512,
        environment={"LANG": "C.UTF-8"},
        default_user="user",
        default_workdir=None,
        built_from="test",
        inputs="x",
    )
    manifest.write(directory, record)
    return directory


@pytest.mark.parametrize("reference", ["base", "base:default", "base:latest", ID, f"{ID}:default"])
async def test_image_is_found_by_id_and_name(reference: str, tmp_path: Path, pool: BlockingPool) -> None:
    directory = _publish(tmp_path, ID, "base")
    image = await DirectoryCatalogue(tmp_path, pool).resolve(reference)
    assert (image.template_id, image.disk, image.default_user) == (ID, directory / "disk-1.ext4", "user")


@pytest.mark.parametrize(
    "reference, message",
    [
        ("nope", "template 'nope' not found"),
        ("", "template '' not found"),
        ("../base", "template '../base' not found"),
        ("nope:default", "template 'nope' not found"),
        ("base:v2", "template 'base' has no tag 'v2'"),
        ("base:", "template 'base' has no tag ''"),
        ("base:default:x", "template 'base' has no tag 'default:x'"),
    ],
)
async def test_unknown_reference_is_not_found(reference: str, message: str, tmp_path: Path, pool: BlockingPool) -> None:
    _publish(tmp_path, ID, "base")
    with pytest.raises(TemplateNotFound) as caught:
        await DirectoryCatalogue(tmp_path, pool).resolve(reference)
    assert (caught.value.message, caught.value.kind) == (message, Kind.NOT_FOUND)


async def test_listing_leaves_out_what_is_damaged(tmp_path: Path, pool: BlockingPool) -> None:
    _publish(tmp_path, ID, "base")
    _publish(tmp_path, "0" * 20, "another")
    (_publish(tmp_path, "1" * 20, "cut") / "disk-1.ext4").write_bytes(b"short")
    (_publish(tmp_path, "2" * 20, "torn") / "manifest.json").write_text("{")
    _publish(tmp_path, "3" * 20, "moved").rename(tmp_path / ("4" * 20))
    (tmp_path / "lost+found").mkdir()
    images = await DirectoryCatalogue(tmp_path, pool).list()
    assert [image.names for image in images] == [("another",), ("base",)]


async def test_missing_directory_is_an_empty_catalogue(tmp_path: Path, pool: BlockingPool) -> None:
    assert await DirectoryCatalogue(tmp_path / "none", pool).list() == []


async def test_replaced_disk_goes_and_the_one_that_setup_has_just_made_stays(
    tmp_path: Path, pool: BlockingPool
) -> None:
    directory = _publish(tmp_path, ID, "base")
    old, fresh = directory / "disk-0.ext4", directory / "disk-00.ext4"
    for disk, age_seconds in ((old, 4000), (directory / "disk-1.ext4", 4000), (fresh, 3000)):
        disk.touch()
        os.utime(disk, (10_000 - age_seconds, 10_000 - age_seconds))
    (_publish(tmp_path, "2" * 20, "torn") / "manifest.json").unlink()
    assert await DirectoryCatalogue(tmp_path, pool).remove_replaced_disks(now=10_000) == (old,)
    assert sorted(path.name for path in directory.glob("disk*")) == ["disk-00.ext4", "disk-1.ext4"]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", "", ".", "disk\n"])
def test_manifest_cannot_name_a_disk_elsewhere(name: str, tmp_path: Path) -> None:
    directory = _publish(tmp_path, ID, "base")
    text = (directory / "manifest.json").read_text().replace('"disk-1.ext4"', f'"{name}"'.replace("\n", "\\n"))
    (directory / "manifest.json").write_text(text)
    with pytest.raises(ImageDamaged):
        manifest.read(directory)


@given(content=st.binary(max_size=300))
def test_any_manifest_is_read_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("image")
    (directory / "manifest.json").write_bytes(content)
    with pytest.raises(ImageDamaged):
        manifest.read(directory)
