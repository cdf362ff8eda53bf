"""Random sequences of everything, on two nodes, against a model that keeps all in dictionaries."""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentenv.base.ids import SnapshotId
from agentenv.objects.directory import DirectoryStore
from agentenv.snapshots.base import SnapshotManifest, SnapshotQuery
from agentenv.snapshots.errors import SnapshotNotFound
from agentenv.snapshots.opening import KINDS, Parts
from support.clock import FakeClock
from support.repository_contract import blobs, collect_all
from support.snapshots import open_parts, publish, record_of

LAYERS = [bytes([number]) * (number + 1) for number in range(5)]
NAMES = ["a:default", "b:v1"]
NODES = ["node-a", "node-b"]

_node = st.sampled_from(NODES)
_number = st.integers(0, 7)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"),
            _node,
            st.lists(st.sampled_from(LAYERS), min_size=1, max_size=4, unique=True),
            st.lists(st.sampled_from(NAMES), max_size=1),
        ),
        st.tuples(st.just("delete"), _node, _number),
        st.tuples(st.just("lease"), _node, st.sampled_from(LAYERS)),
        st.tuples(st.just("release"), _node),
        st.tuples(st.just("collect"), _node),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 60.0, 101.0])),
        st.tuples(st.just("restart"), _node, st.booleans()),
    ),
    max_size=25,
)


class World:
    """Two nodes on one directory, and what should be true of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.nodes: dict[str, Parts] = {}
        self.stacks: dict[str, contextlib.AsyncExitStack] = {}
        self.made: list[SnapshotManifest] = []
        self.live: dict[SnapshotId, SnapshotManifest] = {}
        self.names: dict[str, SnapshotId] = {}
        self.leases: dict[str, set[bytes]] = {node: set() for node in NODES}

    async def open(self, node: str) -> None:
        stack = self.stacks[node] = contextlib.AsyncExitStack()
        store = DirectoryStore(self.root / "store", node=node, kinds=KINDS)
        self.nodes[node] = await stack.enter_async_context(open_parts(store, self.root / node, self.clock, node=node))

    async def do(self, step: tuple[Any, ...]) -> None:
        await getattr(self, f"do_{step[0]}")(*step[1:])

    async def do_publish(self, node: str, layers: list[bytes], names: list[str]) -> None:
        manifest = await publish(self.nodes[node].repository, *layers, names=tuple(names))
        self.made.append(manifest)
        self.live[manifest.snapshot_id] = manifest
        self.names |= dict.fromkeys(names, manifest.snapshot_id)

    async def do_delete(self, node: str, number: int) -> None:
        if number < len(self.made):
            snapshot_id = self.made[number].snapshot_id
            try:
                await self.nodes[node].repository.delete(snapshot_id)
                assert snapshot_id in self.live
            except SnapshotNotFound:
                assert snapshot_id not in self.live
            self.live.pop(snapshot_id, None)
            self.names = {name: holder for name, holder in self.names.items() if holder != snapshot_id}

    async def do_lease(self, node: str, layer: bytes) -> None:
        # A lease is worth something when it is taken while the file is needed.
        if any(record_of(layer) in manifest.records() for manifest in self.live.values()):
            await self.nodes[node].repository.lease("i1", [record_of(layer).digest])
            self.leases[node].add(layer)
            await self.nodes[node].leases.tell()

    async def do_release(self, node: str) -> None:
        await self.nodes[node].repository.release("i1")
        self.leases[node].clear()
        await self.nodes[node].leases.tell()

    async def do_collect(self, node: str) -> None:
        await self.nodes[node].repository.collect()

    async def do_wait(self, seconds: float) -> None:
        self.clock.elapsed += seconds

    async def do_restart(self, node: str, loses_index: bool) -> None:
        await self.stacks[node].aclose()
        if loses_index:
            shutil.rmtree(self.root / node)
        await self.open(node)
        if self.leases[node]:
            await self.nodes[node].repository.lease("i1", [record_of(one).digest for one in self.leases[node]])
        await self.nodes[node].repository.settle(("i1",), ())

    async def check(self) -> None:
        for parts in self.nodes.values():
            await parts.refresh.run()
            page = await parts.repository.list(SnapshotQuery())
            assert {summary.snapshot_id for summary in page.snapshots} == self.live.keys()
            assert {name: one.snapshot_id for one in page.snapshots for name in one.names} == self.names
        there = await blobs(self.nodes[NODES[0]])
        assert there >= self.needed()
        for manifest in self.live.values():
            assert await self.nodes[NODES[1]].repository.get(manifest.snapshot_id) == manifest

    def needed(self) -> set[Any]:
        leased = {record_of(layer) for layers in self.leases.values() for layer in layers}
        return leased | {record for manifest in self.live.values() for record in manifest.records()}

    async def finish(self) -> None:
        for node in NODES:
            await collect_all(self.nodes[node], self.clock)
        assert await blobs(self.nodes[NODES[0]]) == self.needed()
        assert await self.nodes[NODES[0]].repository._store.aside() == {}


async def _run(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        world = World(Path(directory))
        try:
            for node in NODES:
                await world.open(node)
            for step in steps:
                await world.do(step)
                await world.check()
            await world.finish()
        finally:
            for stack in world.stacks.values():
                await stack.aclose()


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_any_sequence_keeps_what_is_needed_and_nothing_else(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(_run(steps))
