"""The store of disks over a fake daemon: names, space, cleaning up, freezing, and what a dead daemon means."""

import asyncio
from pathlib import Path

import pytest

from agentenv.base.ids import SandboxId
from agentenv.blocks import digests
from agentenv.blocks.base import Disk, FileLayer, Stack
from agentenv.blocks.errors import BaseRefused, BlocksRefused, DiskAbsent, DiskDamaged, DiskNotWritten, DiskSpaceShort
from agentenv.blocks.settings import BlocksSettings
from agentenv.blocks.store import LOSS, LayeredStore
from support.fake_blockd import Bench, refuse

ONE, TWO = SandboxId("i0000000000000000001"), SandboxId("i0000000000000000002")
DIGEST = "sha256:" + "ab" * 32
BASE = Stack((FileLayer(Path("/layers/base"), DIGEST),), 4096)


async def test_created_disk_is_found(bench: Bench) -> None:
    disk = await bench.store.create(ONE, BASE, owner=7)

    assert disk == Disk(bench.places.mount / f"disk-{ONE}", 4096)
    assert await bench.store.find(ONE) == disk
    assert await bench.store.find(TWO) is None


async def test_disk_may_be_larger_than_its_base_and_not_smaller(bench: Bench) -> None:
    assert (await bench.store.create(ONE, BASE, owner=7, size_bytes=8192)).size_bytes == 8192
    with pytest.raises(BaseRefused, match="smaller than its base"):
        await bench.store.create(TWO, BASE, owner=7, size_bytes=512)


@pytest.mark.parametrize("count", [0, 256])
async def test_base_of_no_or_too_many_layers_is_refused(bench: Bench, count: int) -> None:
    with pytest.raises(BaseRefused, match=f"not on {count}"):
        await bench.store.create(ONE, Stack(BASE.layers * count, 4096), owner=7)
    assert bench.daemon.calls == []


async def test_no_disk_is_made_below_the_reserve(bench: Bench) -> None:
    store = LayeredStore(bench.client, bench.places, BlocksSettings(reserve_mib=2**40))
    with pytest.raises(DiskSpaceShort, match=r"blocks\.reserve_mib"):
        await store.create(ONE, BASE, owner=7)
    assert list(bench.places.writable.iterdir()) == []


async def test_refused_creation_leaves_nothing(bench: Bench) -> None:
    bench.daemon.answers["open"] = lambda _: refuse("invalid", "bad_layer", "no")
    with pytest.raises(BlocksRefused):
        await bench.store.create(ONE, BASE, owner=7)
    assert list(bench.places.writable.iterdir()) == []
    assert bench.daemon.verbs() == ["open", "close"]


async def test_missing_layer_is_damage_and_not_a_missing_sandbox(bench: Bench) -> None:
    bench.daemon.answers["open"] = lambda _: refuse("not_found", "file_not_found", "/layers/base is missing")
    with pytest.raises(DiskDamaged, match="/layers/base is missing"):
        await bench.store.create(ONE, BASE, owner=7)


async def test_cancelled_creation_has_ended_when_the_caller_goes_on(bench: Bench) -> None:
    bench.daemon.held = asyncio.Event()
    creating = asyncio.ensure_future(bench.store.create(ONE, BASE, owner=7))
    while not bench.daemon.calls:
        await asyncio.sleep(0)
    creating.cancel()
    bench.daemon.held.set()
    with pytest.raises(asyncio.CancelledError):
        await creating

    await bench.store.remove(ONE)
    assert bench.daemon.images == {}
    assert list(bench.places.writable.iterdir()) == []


async def test_remove_can_be_called_again_and_ends_whoever_has_it_open(bench: Bench) -> None:
    await bench.store.create(ONE, BASE, owner=7)
    await bench.store.remove(ONE)
    await bench.store.remove(ONE)
    assert await bench.store.find(ONE) is None
    assert bench.daemon.calls[-2] == ("close", {"name": f"disk-{ONE}", "discard": True, "force": True})


async def test_collect_removes_images_and_directories_without_an_owner(bench: Bench) -> None:
    await bench.store.create(ONE, BASE, owner=7)
    await bench.store.create(TWO, BASE, owner=7)
    await bench.store.open_memory("m1", BASE)
    (bench.places.writable / "stray").mkdir()

    removed = await bench.store.collect(frozenset({ONE}))

    assert removed == [f"disk of {TWO}", "disk of stray"]
    assert sorted(bench.daemon.images) == [f"disk-{ONE}", "memory-m1"]
    assert [entry.name for entry in bench.places.writable.iterdir()] == [ONE]


async def test_leftover_that_resists_stops_no_other(bench: Bench) -> None:
    for sandbox_id in (ONE, TWO):
        await bench.store.create(sandbox_id, BASE, owner=7)
    close = bench.daemon._close
    bench.daemon.answers["close"] = lambda arguments: (
        refuse("unavailable", "io", "no") if arguments["name"].endswith(ONE) else close(arguments)
    )
    assert await bench.store.collect(frozenset()) == [f"disk of {TWO}"]


async def test_frozen_layer_is_given_and_stays_the_disks_own(bench: Bench, tmp_path: Path) -> None:
    await bench.store.create(ONE, BASE, owner=7)
    frozen = await bench.store.freeze(ONE, "s1", tmp_path / "incoming")
    layer = await bench.store.sealed(frozen)
    again = await bench.store.sealed(frozen)
    assert layer == again
    assert (layer.path, layer.path.read_bytes()) == (tmp_path / "incoming", b"sealed s1")

    layer.path.unlink()
    stack = await bench.store.stack(ONE)
    own = bench.places.writable / ONE / "s1.layer"
    assert stack == Stack((BASE.layers[0], FileLayer(own, layer.digest)), 4096)
    assert own.read_bytes() == b"sealed s1"


async def test_layer_whose_digest_was_not_noted_in_time_is_asked_for(bench: Bench, tmp_path: Path) -> None:
    await bench.store.create(ONE, BASE, owner=7)
    layer = await bench.store.sealed(await bench.store.freeze(ONE, "s1", tmp_path / "incoming"))
    directory = bench.places.writable / ONE
    known = digests.read(directory)
    digests.write(directory, {path: digest for path, digest in known.items() if path == BASE.layers[0].path})  # type: ignore[union-attr]

    stack = await bench.store.stack(ONE)

    assert [found.digest for found in stack.layers] == [DIGEST, layer.digest]


async def test_layer_that_cannot_be_handed_over_is_a_typed_error(bench: Bench, tmp_path: Path) -> None:
    await bench.store.create(ONE, BASE, owner=7)
    frozen = await bench.store.freeze(ONE, "s1", tmp_path / "absent" / "incoming")
    with pytest.raises(DiskNotWritten, match="absent"):
        await bench.store.sealed(frozen)


@pytest.mark.parametrize("seal_id", ["", "../up", "a/b", "A", "x" * 82])
async def test_seal_with_a_name_that_is_no_file_name_is_refused(bench: Bench, seal_id: str, tmp_path: Path) -> None:
    with pytest.raises(BaseRefused, match="a seal cannot be called"):
        await bench.store.freeze(ONE, seal_id, tmp_path / "x")


async def test_freezing_what_is_not_there_is_said(bench: Bench) -> None:
    with pytest.raises(DiskAbsent):
        await bench.store.stack(ONE)


async def test_memory_image_in_use_stays(bench: Bench) -> None:
    path = await bench.store.open_memory("m1", BASE)
    assert path == bench.places.mount / "memory-m1"
    assert await bench.store.memory_images() == ["m1"]

    bench.daemon.answers["close"] = lambda _: refuse("conflict", "image_in_use", "in use")
    assert not await bench.store.close_memory("m1")
    del bench.daemon.answers["close"]
    assert await bench.store.close_memory("m1")
    assert await bench.store.memory_images() == []


async def test_death_of_the_daemon_is_told_to_every_sandbox_on_it(bench: Bench) -> None:
    await bench.store.create(ONE, BASE, owner=7)
    losing = asyncio.ensure_future(bench.store.wait_lost(ONE))

    bench.store.lose_all()

    assert await losing == LOSS
    assert await bench.store.find(ONE) is None
    await bench.store.remove(ONE)
    await bench.store.create(ONE, BASE, owner=7)
    assert await bench.store.find(ONE) is not None


async def test_disks_of_a_daemon_that_was_only_just_started_are_lost(bench: Bench) -> None:
    await bench.store.create(ONE, BASE, owner=7)
    following = LayeredStore(bench.client, bench.places, BlocksSettings(reserve_mib=0))

    await following.forget_earlier_life()

    assert await following.find(ONE) is None
    assert await following.collect(frozenset()) == [f"disk of {ONE}"]
