import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentenv.base.aio import BlockingPool
from agentenv.guest import modules
from agentenv.guest.errors import KernelDamaged, ModuleMissing
from support.elf import build_module

_ALL = {
    "virtio_mmio": "",
    "virtio_blk": "",
    "virtio-net": "net-failover",
    "net_failover": "failover",
    "failover": "",
    "virtio_balloon": "",
    "ext4": "jbd2,mbcache",
    "jbd2": "",
    "mbcache": "",
    "loop": "",
}


@pytest.fixture
def pool() -> Iterator[BlockingPool]:
    pool = BlockingPool("test", 1)
    yield pool
    pool.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    return work


def _write_tree(root: Path, files: dict[str, str], builtin: str = "") -> Path:
    for name, depends in files.items():
        path = root / "kernel" / name / f"{name}.ko.xz"
        path.parent.mkdir(parents=True)
        path.write_bytes(lzma.compress(build_module(depends)))
    (root / "modules.builtin").write_text(builtin)
    return root


async def test_each_module_comes_after_what_it_needs(tmp_path: Path, work: Path, pool: BlockingPool) -> None:
    tree = modules.read_tree(_write_tree(tmp_path / "tree", _ALL))
    names = [module.name for module in await modules.collect(pool, tree, work)]
    assert names == [
        "virtio_mmio",
        "virtio_blk",
        "failover",
        "net_failover",
        "virtio_net",
        "jbd2",
        "mbcache",
        "ext4",
        "virtio_balloon",
    ]


async def test_builtin_drivers_are_left_out(tmp_path: Path, work: Path, pool: BlockingPool) -> None:
    files = {name: depends for name, depends in _ALL.items() if name not in {"ext4", "failover"}}
    tree = modules.read_tree(_write_tree(tmp_path / "tree", files, "kernel/fs/ext4/ext4.ko\nkernel/net/failover.ko\n"))
    names = {module.name for module in await modules.collect(pool, tree, work)}
    assert names == {"virtio_mmio", "virtio_blk", "net_failover", "virtio_net", "virtio_balloon"}


async def test_content_is_uncompressed(tmp_path: Path, work: Path, pool: BlockingPool) -> None:
    tree = modules.read_tree(_write_tree(tmp_path / "tree", _ALL))
    first = (await modules.collect(pool, tree, work))[0]
    assert first.content == build_module("")


async def test_kernel_without_a_required_driver_is_refused(tmp_path: Path, work: Path, pool: BlockingPool) -> None:
    files = {name: depends for name, depends in _ALL.items() if name != "virtio_blk"}
    tree = modules.read_tree(_write_tree(tmp_path / "tree", files))
    with pytest.raises(ModuleMissing, match="virtio_blk"):
        await modules.collect(pool, tree, work)


async def test_lost_dependency_is_named(tmp_path: Path, work: Path, pool: BlockingPool) -> None:
    files = {name: depends for name, depends in _ALL.items() if name != "failover"}
    tree = modules.read_tree(_write_tree(tmp_path / "tree", files))
    with pytest.raises(ModuleMissing, match="net_failover needs failover"):
        await modules.collect(pool, tree, work)


async def test_modules_that_need_each_other_are_damage(tmp_path: Path, work: Path, pool: BlockingPool) -> None:
    tree = modules.read_tree(_write_tree(tmp_path / "tree", _ALL | {"failover": "net_failover"}))
    with pytest.raises(KernelDamaged, match="depend on each other"):
        await modules.collect(pool, tree, work)


async def test_file_that_is_no_module_is_damage(tmp_path: Path, work: Path, pool: BlockingPool) -> None:
    root = _write_tree(tmp_path / "tree", _ALL)
    (root / "kernel/virtio_blk/virtio_blk.ko.xz").write_bytes(lzma.compress(b"text"))
    with pytest.raises(KernelDamaged, match="virtio_blk"):
        await modules.collect(pool, modules.read_tree(root), work)
