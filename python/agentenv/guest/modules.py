"""Finds the drivers that a guest needs among a kernel's modules, in the order in which they load."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.aio import BlockingPool
from agentenv.guest import decompress, elf
from agentenv.guest.errors import KernelDamaged, ModuleMissing

# What the root disk, the network and the memory balloon stand on. The first group must be there.
REQUIRED = ("virtio_mmio", "virtio_blk", "virtio_net", "ext4")
OPTIONAL = ("virtio_balloon", "virtio_rng")
_MODULE_LIMIT_BYTES = 16 << 20
_FILE_NAME = re.compile(r"(?P<name>[\w-]+)\.ko(\.(xz|zst|gz))?")


@dataclass(frozen=True, slots=True)
class Module:
    """A driver as the kernel takes it: uncompressed."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ModuleTree:
    """The directory lib/modules/RELEASE of a kernel, or of a kernel without modules when `files` is empty."""

    files: dict[str, Path]
    builtin: frozenset[str]

    def holds(self, name: str) -> bool:
        """Return whether the kernel can have this driver."""
        return name in self.builtin or name in self.files


def read_tree(directory: Path) -> ModuleTree:
    """Return what is in the modules directory of a kernel."""
    files = {}
    for path in sorted(directory.rglob("*.ko*")):
        match = _FILE_NAME.fullmatch(path.name)
        if match:
            files[_canonical(match["name"])] = path
    listing = directory / "modules.builtin"
    lines = listing.read_text(errors="replace").splitlines() if listing.exists() else []
    return ModuleTree(files, frozenset(_canonical(Path(line).stem) for line in lines))


async def collect(pool: BlockingPool, tree: ModuleTree, work: Path) -> list[Module]:
    """Return the modules that a guest loads, each after those that it depends on. `work` is a scratch directory.

    Raises `ModuleMissing` when a required driver is neither a module nor built in.
    """
    missing = [name for name in REQUIRED if not tree.holds(name)]
    if missing:
        raise ModuleMissing(f"the guest kernel has no driver {', '.join(missing)}; choose another kernel")
    collector = _Collector(pool, tree, work)
    for name in (*REQUIRED, *OPTIONAL):
        await collector.add(name)
    return list(collector.ordered.values())


class _Collector:
    """Walks dependencies depth first; `ordered` keeps the order in which the walk left each module."""

    def __init__(self, pool: BlockingPool, tree: ModuleTree, work: Path) -> None:
        self._pool = pool
        self._tree = tree
        self._work = work
        self.ordered: dict[str, Module] = {}

    async def add(self, name: str, parents: tuple[str, ...] = ()) -> None:
        """Take in `name`, after what it depends on; nothing happens when it is there already or built in."""
        if name in self.ordered or name in self._tree.builtin or name not in self._tree.files:
            return
        if name in parents:
            raise KernelDamaged(f"the modules {' -> '.join((*parents, name))} depend on each other")
        scratch = self._work / f"{name}.ko"
        content = await self._pool.run(self._tree.files[name].read_bytes)
        await decompress.expand(self._pool, content, scratch, limit_bytes=_MODULE_LIMIT_BYTES)
        for dependency in read_dependencies(scratch):
            if not self._tree.holds(dependency):
                raise ModuleMissing(f"the module {name} needs {dependency}, which the kernel does not have")
            await self.add(dependency, (*parents, name))
        self.ordered[name] = Module(name, scratch.read_bytes())


def read_dependencies(module: Path) -> list[str]:
    """Return the names of the modules that must be loaded before `module`.

    They are read from the module itself: modules.dep is written by an installation, and packages are only unpacked.
    """
    try:
        with module.open("rb") as file:
            facts = elf.read_section(file, b".modinfo")
    except elf.NotElf as error:
        raise KernelDamaged(f"{module.name} is no kernel module: {error}") from error
    return list(_parse_dependencies((facts or b"").split(b"\0")))


def _parse_dependencies(facts: Iterable[bytes]) -> Iterable[str]:
    for fact in facts:
        if fact.startswith(b"depends="):
            yield from (_canonical(name) for name in fact[8:].decode(errors="replace").split(",") if name)


def _canonical(name: str) -> str:
    """Return the name that the kernel uses: file names may have dashes, names of modules never do."""
    return name.replace("-", "_")
