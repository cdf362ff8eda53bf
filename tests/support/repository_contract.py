"""What every repository must do; a test module inherits it and brings fixtures `parts`, `other` and `clock`.

`other` is the same repository as another node sees it.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from agentenv.base import ids
from agentenv.base.errors import Bug
from agentenv.blocks.base import FileLayer
from agentenv.objects.errors import StoreUnavailable
from agentenv.snapshots.base import FileRecord, SnapshotKind, SnapshotQuery
from agentenv.snapshots.errors import NameTaken, SnapshotDamaged, SnapshotExists, SnapshotNotFound
from agentenv.snapshots.opening import Parts
from support.clock import START, FakeClock
from support.snapshots import make_manifest, publish, record_of, write_files

SNAPSHOTS = SnapshotQuery()


async def listed(parts: Parts, query: SnapshotQuery = SNAPSHOTS) -> list[str]:
    return [summary.snapshot_id for summary in (await parts.repository.list(query)).snapshots]


class RepositoryContract:
    """Publication, names, deletion, trees, leases, collection."""

    async def test_a_published_snapshot_is_found_and_whole(self, parts: Parts) -> None:
        repository = parts.repository
        made = await publish(repository, b"disk", memory=(b"memory",), names=("x:default",))
        assert await repository.get(made.snapshot_id) == made
        assert await listed(parts) == [made.snapshot_id]
        assert await repository.resolve("x") == made.snapshot_id
        await repository.verify(made.snapshot_id)
        assert made.device_state is not None
        assert (await repository.fetch(made.device_state)).read_bytes() == b"state of memory"
        assert await repository._store.workspaces() == []

    async def test_what_one_node_publishes_another_finds(self, parts: Parts, other: Parts) -> None:
        made = await publish(parts.repository, b"disk", names=("x:default",))
        assert await other.repository.get(made.snapshot_id) == made
        assert await other.repository.resolve("x:latest") == made.snapshot_id
        await other.refresh.run()
        assert await listed(other) == [made.snapshot_id]
        await other.repository.delete(made.snapshot_id)
        with pytest.raises(SnapshotNotFound):
            await parts.repository.get(made.snapshot_id)
        await parts.refresh.run()
        assert await listed(parts) == []

    async def test_publishing_again_completes_and_repeats_nothing(self, parts: Parts) -> None:
        made = await publish(parts.repository, b"disk")
        await parts.repository.publish(made, {})
        named = replace(made, snapshot_id=made.snapshot_id)
        await parts.repository.publish(named, await write_files(parts.repository, made.snapshot_id, [b"disk"]))
        assert await listed(parts) == [made.snapshot_id]

    async def test_an_id_belongs_to_one_snapshot(self, parts: Parts) -> None:
        made = await publish(parts.repository, b"disk")
        with pytest.raises(SnapshotExists):
            await parts.repository.publish(replace(made, vcpus=7), {})
        await parts.repository.delete(made.snapshot_id)
        with pytest.raises(SnapshotExists):
            await parts.repository.publish(made, {})

    async def test_nothing_is_published_without_its_files(self, parts: Parts) -> None:
        made = make_manifest(b"nowhere")
        with pytest.raises(SnapshotDamaged, match=made.disk_layers[0].digest):
            await parts.repository.publish(made, {})
        short = await write_files(parts.repository, made.snapshot_id, [b"nowhe"])
        with pytest.raises(SnapshotDamaged, match="5 bytes, not 7"):
            await parts.repository.publish(made, {record_of(b"nowhere").digest: next(iter(short.values()))})
        with pytest.raises(SnapshotNotFound):
            await parts.repository.get(made.snapshot_id)

    async def test_files_that_the_manifest_does_not_name_are_our_mistake(self, parts: Parts) -> None:
        made = make_manifest(b"disk")
        with pytest.raises(Bug):
            await parts.repository.publish(
                made, await write_files(parts.repository, made.snapshot_id, [b"disk", b"extra"])
            )

    async def test_a_name_moves_to_the_newest(self, parts: Parts) -> None:
        first = await publish(parts.repository, b"1", names=("x:default", "x:v1"))
        second = await publish(parts.repository, b"2", names=("x:default",))
        assert await parts.repository.resolve("ns/x") == second.snapshot_id
        assert await parts.repository.resolve("x:v1") == first.snapshot_id
        page = await parts.repository.list(SNAPSHOTS)
        assert [summary.names for summary in page.snapshots] == [("x:default",), ("x:v1",)]

    async def test_a_name_is_given_by_compare_and_set(self, parts: Parts, other: Parts) -> None:
        first, second = [(await publish(parts.repository, content)).snapshot_id for content in (b"1", b"2")]
        await parts.repository.point("x", first, expected=None)
        with pytest.raises(NameTaken, match=str(first)):
            await other.repository.point("x", second, expected=None)
        await other.repository.point("x", second, expected=first)
        with pytest.raises(NameTaken):
            await parts.repository.point("x", None, expected=first)
        with pytest.raises(SnapshotNotFound):
            await parts.repository.point("x", ids.new_snapshot_id(START), expected=second)
        await parts.repository.point("x", None, expected=second)
        with pytest.raises(SnapshotNotFound):
            await parts.repository.resolve("x")

    async def test_of_many_who_want_a_name_one_gets_it(self, parts: Parts, other: Parts) -> None:
        made = [(await publish(parts.repository, bytes([one]))).snapshot_id for one in range(6)]
        results = await asyncio.gather(
            *(
                node.repository.point("x", one, expected=None)
                for one, node in zip(made, [parts, other] * 3, strict=True)
            ),
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in results) == ["NameTaken"] * 5 + ["NoneType"]
        assert await parts.repository.resolve("x") == made[results.index(None)]

    async def test_deleting_takes_the_names_and_is_done_once(self, parts: Parts) -> None:
        made = await publish(parts.repository, b"disk", names=("x:default",))
        await parts.repository.point("y:2", made.snapshot_id, expected=None)
        await parts.repository.delete(made.snapshot_id)
        for reference in ("x", "y:2", made.snapshot_id):
            with pytest.raises(SnapshotNotFound):
                await parts.repository.resolve(reference)
        with pytest.raises(SnapshotNotFound):
            await parts.repository.delete(made.snapshot_id)
        assert await listed(parts) == []

    async def test_names_that_nobody_can_have_are_not_found(self, parts: Parts) -> None:
        for name in ("", "a b", "../x", "x" * 500, "a:b:c", "ns//x", "\0", ids.new_snapshot_id(START)):
            with pytest.raises(SnapshotNotFound):
                await parts.repository.resolve(name)
            assert (await parts.repository.list(SnapshotQuery(name=name))).snapshots == ()

    async def test_lists_are_filtered_and_newest_first(self, parts: Parts) -> None:
        sandbox = ids.new_sandbox_id()
        one = (await publish(parts.repository, b"1", names=("x:default",))).snapshot_id
        two = (await publish(parts.repository, b"2", sandbox_id=sandbox, names=("xy:v1",))).snapshot_id
        paused = (await publish(parts.repository, b"3", sandbox_id=sandbox, kind=SnapshotKind.PAUSE)).snapshot_id
        assert await listed(parts) == [two, one]
        assert await listed(parts, SnapshotQuery(kind=None, sandbox_id=sandbox)) == [paused, two]
        assert await listed(parts, SnapshotQuery(kind=SnapshotKind.PAUSE)) == [paused]
        assert await listed(parts, SnapshotQuery(name="x")) == [one]
        assert await listed(parts, SnapshotQuery(name="xy")) == [two]
        assert await listed(parts, SnapshotQuery(name="xy:default")) == []

    async def test_pages_lose_and_repeat_nothing_while_the_list_changes(self, parts: Parts) -> None:
        moment = START + timedelta(days=1)
        made = [(await publish(parts.repository, bytes([one]), created_at=moment)).snapshot_id for one in range(7)]
        seen: list[str] = []
        cursor = None
        while True:
            page = await parts.repository.list(SNAPSHOTS, after=cursor, limit=2)
            seen += [summary.snapshot_id for summary in page.snapshots]
            cursor = page.following
            if cursor is None:
                break
            await parts.repository.delete(cursor.snapshot_id)
            await publish(parts.repository, b"new", created_at=moment + timedelta(days=1))
        assert seen == sorted(made, reverse=True)

    async def test_a_tree_knows_parents_and_children(self, parts: Parts) -> None:
        root = (await publish(parts.repository, b"1")).snapshot_id
        left = (await publish(parts.repository, b"1", b"2", parent_id=root)).snapshot_id
        right = (await publish(parts.repository, b"1", b"3", parent_id=root, kind=SnapshotKind.PAUSE)).snapshot_id
        leaf = (await publish(parts.repository, b"1", b"2", b"4", parent_id=left)).snapshot_id
        repository = parts.repository
        assert [summary.snapshot_id for summary in await repository.children(root)] == [left, right]
        assert [summary.snapshot_id for summary in await repository.lineage(leaf)] == [leaf, left, root]
        assert [summary.snapshot_id for summary in await repository.tree(right)] == [root, left, right, leaf]
        assert len(await repository.tree(right, limit=2)) == 2
        await repository.delete(root)
        assert [summary.snapshot_id for summary in await repository.tree(leaf)] == [left, right, leaf]
        with pytest.raises(SnapshotNotFound):
            await repository.lineage(root)

    async def test_children_outlive_their_parents(self, parts: Parts, clock: FakeClock) -> None:
        parent = await publish(parts.repository, b"1", b"2")
        child = await publish(parts.repository, b"1", b"2", b"3", parent_id=parent.snapshot_id)
        await parts.repository.delete(parent.snapshot_id)
        await collect_all(parts, clock)
        await parts.repository.verify(child.snapshot_id)

    async def test_files_that_nothing_needs_go_after_twice_the_grace(self, parts: Parts, clock: FakeClock) -> None:
        made = await publish(parts.repository, b"gone", b"kept")
        await publish(parts.repository, b"kept")
        await parts.repository.delete(made.snapshot_id)
        gone = record_of(b"gone")
        assert (await parts.repository.collect()).waiting == (gone,)
        clock.elapsed += 101
        assert (await parts.repository.collect(dry_run=True)).set_aside == (gone,)
        assert (await parts.repository.collect()).set_aside == (gone,)
        assert await blobs(parts) == {record_of(b"kept")}
        clock.elapsed += 99
        assert (await parts.repository.collect()).removed == ()
        clock.elapsed += 1
        assert (await parts.repository.collect(dry_run=True)).removed == (gone,)
        assert (await parts.repository.collect()).removed == (gone,)
        assert await parts.repository._store.aside() == {}

    async def test_a_dry_run_changes_nothing(self, parts: Parts, clock: FakeClock) -> None:
        made = await publish(parts.repository, b"gone")
        await parts.repository.delete(made.snapshot_id)
        for _ in range(4):
            assert (await parts.repository.collect(dry_run=True)).waiting == (record_of(b"gone"),)
            clock.elapsed += 1000

    async def test_a_file_that_cannot_be_taken_away_does_not_keep_the_others(
        self, parts: Parts, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = await publish(parts.repository, b"stuck", b"free")
        await parts.repository.delete(made.snapshot_id)
        set_aside = parts.repository._store.set_aside

        async def refuse(digest: str) -> None:
            if digest == record_of(b"stuck").digest:
                raise StoreUnavailable("it cannot be moved")
            await set_aside(digest)

        monkeypatch.setattr(parts.repository._store, "set_aside", refuse)
        await collect_all(parts, clock)
        assert await blobs(parts) == {record_of(b"stuck")}
        monkeypatch.undo()
        await collect_all(parts, clock)
        assert await blobs(parts) == set()

    async def test_leases_of_every_node_keep_files(self, parts: Parts, other: Parts, clock: FakeClock) -> None:
        made = await publish(parts.repository, b"read here", b"read there")
        await parts.repository.lease("i1", [record_of(b"read here").digest])
        await other.repository.lease("i2", [record_of(b"read there").digest])
        await other.leases.tell()
        await parts.repository.delete(made.snapshot_id)
        for node in (parts, other):
            await node.leases.tell()
            await collect_all(node, clock)
        assert await blobs(parts) == {record_of(b"read here"), record_of(b"read there")}
        await parts.repository.release("i1")
        await other.repository.release("i2")
        await other.leases.tell()
        await collect_all(parts, clock)
        assert await blobs(parts) == set()

    async def test_a_node_that_is_silent_for_too_long_keeps_nothing(
        self, parts: Parts, other: Parts, clock: FakeClock
    ) -> None:
        made = await publish(parts.repository, b"read there")
        await other.repository.lease("i2", [record_of(b"read there").digest])
        await other.leases.tell()
        await parts.repository.delete(made.snapshot_id)
        await collect_all(parts, clock)
        assert await blobs(parts) == {record_of(b"read there")}
        clock.elapsed += 90_000
        await collect_all(parts, clock)
        assert await blobs(parts) == set()

    async def test_what_was_set_aside_comes_back_for_whoever_needs_it(self, parts: Parts, clock: FakeClock) -> None:
        made = await publish(parts.repository, b"wanted")
        await parts.repository._store.set_aside(record_of(b"wanted").digest)
        await parts.repository.fetch(record_of(b"wanted"))
        await parts.repository._store.set_aside(record_of(b"wanted").digest)
        assert (await parts.repository.collect()).restored == (record_of(b"wanted"),)
        await parts.repository.verify(made.snapshot_id)

    async def test_a_publication_wins_against_a_collection(self, parts: Parts, other: Parts, clock: FakeClock) -> None:
        """The collector takes a file away between its storing and the manifest, and again right after it."""
        for moment in ("before", "after"):
            content = f"contested {moment}".encode()
            deleted = await publish(parts.repository, content)
            await parts.repository.delete(deleted.snapshot_id)
            await other.repository.collect()
            clock.elapsed += 101
            create = parts.catalogue.create

            async def contested(manifest: object, create: object = create, moment: str = moment) -> None:
                if moment == "before":
                    await other.repository.collect()
                await create(manifest)  # type: ignore[operator]
                if moment == "after":
                    await other.repository.collect()

            parts.catalogue.create = contested  # type: ignore[method-assign]
            made = await publish(parts.repository, content)
            parts.catalogue.create = create  # type: ignore[method-assign]
            # Reading would heal it; it must be there before anybody reads.
            assert record_of(content) in await blobs(parts)
            await collect_all(other, clock)
            assert record_of(content) in await blobs(parts)
            await parts.repository.verify(made.snapshot_id)

    async def test_a_file_comes_back_for_a_manifest_that_appeared_meanwhile(
        self, parts: Parts, other: Parts, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The publisher wrote the manifest while the collector took the file, and died before it could look again."""
        deleted = await publish(parts.repository, b"contested")
        await parts.repository.delete(deleted.snapshot_id)
        await other.repository.collect()
        clock.elapsed += 101
        made = make_manifest(b"contested")
        set_aside = other.repository._store.set_aside

        async def contested(digest: str) -> None:
            await set_aside(digest)
            await parts.catalogue.create(made)

        monkeypatch.setattr(other.repository._store, "set_aside", contested)
        assert (await other.repository.collect()).restored == (record_of(b"contested"),)
        assert record_of(b"contested") in await blobs(parts)

    async def test_a_missing_file_is_named_and_can_be_deleted(self, parts: Parts, other: Parts) -> None:
        made = await publish(parts.repository, b"disk", memory=(b"memory",))
        lost = record_of(b"memory")
        await parts.repository._store.set_aside(lost.digest)
        await parts.repository._store.purge(lost.digest)
        repository = other.repository
        for attempt in (
            lambda: repository.layer(lost),
            lambda: repository.fetch(lost),
            lambda: repository.verify(made.snapshot_id),
            lambda: repository.stack(made.memory_layers, 1 << 29),
        ):
            with pytest.raises(SnapshotDamaged, match=lost.digest):
                await attempt()
        await parts.repository.delete(made.snapshot_id)

    async def test_a_file_of_other_content_is_named(self, parts: Parts) -> None:
        made = await publish(parts.repository, b"whole")
        source = await parts.repository._store.workspace("damage") / "file"
        source.write_bytes(b"who")
        await parts.repository._store.put_blob(record_of(b"whole").digest, source)
        with pytest.raises(SnapshotDamaged, match=record_of(b"whole").digest):
            await parts.repository.verify(made.snapshot_id)

    async def test_a_damaged_manifest_hurts_no_other_and_keeps_its_files(self, parts: Parts, clock: FakeClock) -> None:
        good = await publish(parts.repository, b"good")
        bad = await publish(parts.repository, b"precious", names=("x:default",))
        store = parts.repository._store
        cell = await store.read_cell("manifests", bad.snapshot_id)
        assert cell is not None
        for content in (cell.content.replace(b'"format": 1', b'"format": 99'), cell.content[:-40]):
            cell = await store.read_cell("manifests", bad.snapshot_id)
            assert cell is not None
            await store.write_cell("manifests", bad.snapshot_id, content, expected=cell.version)
            with pytest.raises(SnapshotDamaged, match=bad.snapshot_id):
                await parts.repository.get(bad.snapshot_id)
            await collect_all(parts, clock)
            assert await listed(parts) == [good.snapshot_id]
            assert record_of(b"precious") in await blobs(parts)
        assert await parts.repository.resolve("x") == bad.snapshot_id
        await parts.repository.delete(bad.snapshot_id)
        with pytest.raises(SnapshotNotFound):
            await parts.repository.resolve("x")
        await collect_all(parts, clock)
        assert await blobs(parts) == {record_of(b"good")}

    async def test_captures_that_nobody_goes_on_with_are_discarded(self, parts: Parts) -> None:
        kept, lost, given_up = (ids.new_snapshot_id(START) for _ in range(3))
        for capture in (kept, lost, given_up):
            (await parts.repository.incoming(capture) / "memory").write_bytes(b"x")
        await parts.repository.lease("i1", [record_of(b"x").digest])
        await parts.repository.discard(given_up)
        await parts.repository.settle((), (kept,))
        assert await parts.repository._store.workspaces() == [kept]
        assert await parts.leases.own() == frozenset()

    async def test_collection_leaves_nothing_of_deleted_snapshots(self, parts: Parts, clock: FakeClock) -> None:
        for number in range(3):
            made = await publish(parts.repository, bytes([number]), names=(f"x{number}:default",))
            await parts.repository.delete(made.snapshot_id)
        await collect_all(parts, clock)
        store = parts.repository._store
        assert (await store.cells("manifests"), await store.blobs(), await store.aside()) == ({}, {}, {})

    async def test_layers_of_images_are_told_to_images(self, parts: Parts) -> None:
        outside = f"sha256:{'1' * 64}"
        layers = (FileLayer(Path("/images/base"), outside), record_of(b"own"))
        made = make_manifest(b"own", disk_layers=layers)
        await parts.repository.publish(made, await write_files(parts.repository, made.snapshot_id, [b"own"]))
        assert await parts.repository.image_layers() == {outside}
        stack = await parts.repository.stack(made.disk_layers, made.disk_size_bytes)
        assert stack.layers[0] == layers[0]
        assert stack.size_bytes == made.disk_size_bytes


async def blobs(parts: Parts) -> set[FileRecord]:
    return {FileRecord(digest, size) for digest, size in (await parts.repository._store.blobs()).items()}


async def collect_all(parts: Parts, clock: FakeClock) -> None:
    for _ in range(4):
        await parts.repository.collect()
        clock.elapsed += 101
