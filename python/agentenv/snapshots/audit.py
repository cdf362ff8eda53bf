"""Looks at a whole repository, beside running servers: what is there, needed, and damaged. Changes nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from agentenv.base.ids import SnapshotId, parse_snapshot_id
from agentenv.objects.base import ObjectStore, Version
from agentenv.snapshots import findings
from agentenv.snapshots.base import SnapshotKind, SnapshotManifest
from agentenv.snapshots.catalogue import MANIFESTS
from agentenv.snapshots.findings import State
from agentenv.snapshots.leases import LEASES
from agentenv.snapshots.manifest import find_digests

_CHUNK = 256

Hear = Callable[[int, int], object]
"""Hears how many files were read, of how many."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A snapshot that cannot be used, and why."""

    snapshot_id: SnapshotId
    reason: str


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found. Files that are `unneeded` by snapshots, but leased, are counted in `leased_bytes` as well."""

    snapshots: int
    paused: int
    nodes: int
    files: int
    stored_bytes: int
    unneeded_bytes: int
    leased_bytes: int
    aside_bytes: int
    damaged: tuple[Damage, ...]


async def audit(store: ObjectStore, *, reads_files: bool, hear: Hear) -> Audit:
    """Audit a store that is started. `reads_files`: compare the content of every needed file with its digest."""
    manifests, digests, damaged = await _read_manifests(store)
    leased, nodes = await _read_leases(store)
    blobs = await store.blobs()
    bad = await _read_files(store, sorted(digests & blobs.keys()), hear) if reads_files else {}
    damaged += [damage for manifest in manifests if (damage := _find_damage(manifest, blobs, bad)) is not None]
    unneeded = {digest: size for digest, size in blobs.items() if digest not in digests}
    return Audit(
        snapshots=sum(manifest.kind is SnapshotKind.SNAPSHOT for manifest in manifests),
        paused=sum(manifest.kind is SnapshotKind.PAUSE for manifest in manifests),
        nodes=nodes,
        files=len(blobs),
        stored_bytes=sum(blobs.values()),
        unneeded_bytes=sum(unneeded.values()),
        leased_bytes=sum(size for digest, size in unneeded.items() if digest in leased),
        aside_bytes=sum((await store.aside()).values()),
        damaged=tuple(damaged),
    )


async def _read_manifests(store: ObjectStore) -> tuple[list[SnapshotManifest], set[str], list[Damage]]:
    manifests: list[SnapshotManifest] = []
    digests: set[str] = set()
    damaged: list[Damage] = []
    for chunk in _chunks(await store.cells(MANIFESTS)):
        cells = await store.read_cells(MANIFESTS, chunk)
        for key in filter(parse_snapshot_id, chunk):
            if key not in cells:
                damaged.append(Damage(SnapshotId(key), "its manifest cannot be read"))
                continue
            finding = findings.interpret(SnapshotId(key), cells[key])
            digests |= finding.digests
            if finding.state is State.DAMAGED:
                damaged.append(Damage(finding.snapshot_id, finding.problem))
            elif finding.manifest is not None:
                manifests.append(finding.manifest)
    return manifests, digests, damaged


async def _read_leases(store: ObjectStore) -> tuple[set[str], int]:
    nodes = await store.cells(LEASES)
    cells = await store.read_cells(LEASES, nodes)
    return {digest for cell in cells.values() for digest in find_digests(cell.content)}, len(nodes)


async def _read_files(store: ObjectStore, digests: list[str], hear: Hear) -> dict[str, str]:
    bad = {}
    for count, digest in enumerate(digests, start=1):
        found = await store.digest_blob(digest)
        if found != digest:
            bad[digest] = "is gone" if found is None else "has other content"
        hear(count, len(digests))
    return bad


def _find_damage(manifest: SnapshotManifest, blobs: Mapping[str, int], bad: Mapping[str, str]) -> Damage | None:
    for record in manifest.records():
        size = blobs.get(record.digest)
        if size is None:
            return Damage(manifest.snapshot_id, f"the file {record.digest} is missing")
        if size != record.size_bytes:
            return Damage(manifest.snapshot_id, f"the file {record.digest} has {size} bytes, not {record.size_bytes}")
        if record.digest in bad:
            return Damage(manifest.snapshot_id, f"the file {record.digest} {bad[record.digest]}")
    return None


def _chunks(found: Mapping[str, Version]) -> Iterator[dict[str, Version]]:
    remaining = iter(found.items())
    while chunk := dict(islice(remaining, _CHUNK)):
        yield chunk
