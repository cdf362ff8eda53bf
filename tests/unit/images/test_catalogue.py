import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.base.aio import BlockingPool
from agentenv.base.errors import Kind
from agentenv.blocks.base import FileLayer, RegistryLayer, Stack
from agentenv.images import earlier, launchable, manifest, shelf
from agentenv.images.catalogue import DirectoryCatalogue
from agentenv.images.errors import ImageDamaged, TemplateNotFound
from agentenv.images.manifest import ImageManifest, StoredLayer

ID = "abcdefghij0123456789"
DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def pool() -> Iterator[BlockingPool]:
    pool = BlockingPool("test", 1)
    yield pool
    pool.close()


def _publish(home: Path, template_id: str = ID, *names: str, digest: str = DIGEST) -> Path:
    layer = shelf.place(home, digest)
    layer.parent.mkdir(exist_ok=True)
    layer.write_bytes(b"layer")
    record = ImageManifest(
        template_id=template_id,
        names=names,
        layers=(StoredLayer(digest=digest, size_bytes=5),),
        disk_size_bytes=4096,
        vcpus=2,
        memory_mib=512,
        environment={"LANG": "C.UTF-8"},
        default_user="user",
        default_workdir=None,
        built_from="test",
        inputs="x",
    )
    manifest.write(home / "images" / template_id, record)
    return home / "images" / template_id


@pytest.mark.parametrize("reference", ["base", "base:default", "base:latest", ID, f"{ID}:default"])
async def test_image_is_found_by_id_and_name(reference: str, tmp_path: Path, pool: BlockingPool) -> None:
    _publish(tmp_path, ID, "base")
    image = await DirectoryCatalogue(tmp_path, pool).resolve(reference)
    assert (image.template_id, image.default_user, image.disk_size_bytes) == (ID, "user", 4096)
    assert image.disk == Stack((FileLayer(tmp_path / "layers" / DIGEST.replace(":", "-"), DIGEST),), 4096)


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
    _publish(tmp_path, "1" * 20, "cut", digest="sha256:" + "1" * 64)
    shelf.place(tmp_path, "sha256:" + "1" * 64).write_bytes(b"la")
    (_publish(tmp_path, "2" * 20, "torn") / "manifest.json").write_text("{")
    _publish(tmp_path, "3" * 20, "moved").rename(tmp_path / "images" / ("4" * 20))
    (tmp_path / "images" / "lost+found").mkdir()
    images = await DirectoryCatalogue(tmp_path, pool).list()
    assert [image.names for image in images] == [("another",), ("base",)]


async def test_missing_directory_is_an_empty_catalogue(tmp_path: Path, pool: BlockingPool) -> None:
    assert await DirectoryCatalogue(tmp_path / "none", pool).list() == []


def test_layer_of_a_registry_is_launched_from_there(tmp_path: Path) -> None:
    directory = _publish(tmp_path, ID, "base")
    remote = RegistryLayer("https://host/v2/name", DIGEST, 7)
    record = manifest.read(directory)
    manifest.write(directory, record.model_copy(update={"layers": (remote, *record.layers)}))
    assert launchable.to_image(tmp_path, manifest.read(directory)).disk.layers[0] == remote


def _of_earlier_form(home: Path) -> Path:
    directory = _publish(home, ID, "base")
    document = json.loads((directory / "manifest.json").read_text())
    del document["layers"]
    (directory / "manifest.json").write_text(json.dumps(document | {"disk_file": "disk-1.ext4"}))
    (directory / "disk-1.ext4").write_bytes(bytes(4096))
    return directory


def test_image_of_the_earlier_form_is_found_and_keeps_what_it_was(tmp_path: Path) -> None:
    directory = _of_earlier_form(tmp_path)
    with pytest.raises(ImageDamaged, match="run `aenv setup`"):
        manifest.read(directory)

    found = earlier.find(tmp_path / "images", "base")

    assert found is not None
    assert (found[0], found[1].disk_file) == (directory, "disk-1.ext4")
    manifest.write(directory, found[1].with_layer(StoredLayer(digest=DIGEST, size_bytes=5)))
    image = launchable.to_image(tmp_path, manifest.read(directory))
    assert (image.template_id, image.environment, image.names) == (ID, {"LANG": "C.UTF-8"}, ("base",))


async def test_raw_disk_goes_an_hour_after_its_image_has_layers(tmp_path: Path, pool: BlockingPool) -> None:
    _of_earlier_form(tmp_path)
    catalogue = DirectoryCatalogue(tmp_path, pool)
    assert await catalogue.remove_replaced_disks(now=10**10) == ()

    directory = _publish(tmp_path, ID, "base")
    os.utime(directory / "manifest.json", (10_000, 10_000))
    assert await catalogue.remove_replaced_disks(now=12_000) == ()
    assert await catalogue.remove_replaced_disks(now=14_000) == (directory / "disk-1.ext4",)


@pytest.mark.parametrize("digest", ["../x", "sha256:..", "sha256:" + "A" * 64, "", "sha256:" + "a" * 64 + "\n"])
def test_manifest_cannot_name_a_layer_elsewhere(digest: str, tmp_path: Path) -> None:
    directory = _publish(tmp_path, ID, "base")
    text = (directory / "manifest.json").read_text().replace(json.dumps(DIGEST), json.dumps(digest))
    (directory / "manifest.json").write_text(text)
    with pytest.raises(ImageDamaged):
        manifest.read(directory)


@given(content=st.binary(max_size=300))
def test_any_manifest_is_read_or_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("image")
    (directory / "manifest.json").write_bytes(content)
    with pytest.raises(ImageDamaged):
        manifest.read(directory)
