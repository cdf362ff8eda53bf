"""`aenv repository`: what it counts, what it finds, and that it changes nothing."""

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner, Result

from agentenv.main.repository.command import make_command
from agentenv.main.settings import Settings
from agentenv.objects.directory import DirectoryStore
from agentenv.snapshots.base import SnapshotKind
from agentenv.snapshots.opening import KINDS
from support.clock import FakeClock
from support.snapshots import open_parts, publish, record_of


def run(home: Path, *words: str) -> Result:
    return CliRunner().invoke(make_command(lambda: Settings(home=home)), words)


def fill(home: Path) -> str:
    async def work() -> str:
        store = DirectoryStore(home / "snapshots", node="node-a", kinds=KINDS)
        async with open_parts(store, home / "repository", FakeClock()) as parts:
            made = await publish(parts.repository, b"12345", memory=(b"memory",))
            await publish(parts.repository, b"67", kind=SnapshotKind.PAUSE)
            gone = await publish(parts.repository, b"leased", b"rest")
            await parts.repository.lease("i1", [record_of(b"leased").digest])
            await parts.leases.tell()
            await parts.repository.delete(gone.snapshot_id)
            return made.snapshot_id

    return asyncio.run(work())


def test_it_counts_what_is_there_and_what_nothing_needs(tmp_path: Path) -> None:
    fill(tmp_path)
    result = run(tmp_path, "--json", "--verify")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "snapshots": 1,
        "paused": 1,
        "nodes": 1,
        "files": 6,
        "stored_bytes": 5 + 6 + len(b"state of memory") + 2 + 6 + 4,
        "unneeded_bytes": 10,
        "leased_bytes": 6,
        "aside_bytes": 0,
        "damaged": [],
    }


def test_damage_is_named_by_content_size_absence_and_manifest(tmp_path: Path) -> None:
    made = fill(tmp_path)
    layer = tmp_path / "snapshots/layers/sha256" / record_of(b"12345").digest.removeprefix("sha256:")
    layer.write_bytes(b"54321")
    assert run(tmp_path).exit_code == 0
    found = {}
    result = run(tmp_path, "--verify")
    found["content"] = result
    layer.write_bytes(b"1")
    found["has 1 bytes, not 5"] = run(tmp_path)
    layer.unlink()
    found["missing"] = run(tmp_path)
    (manifest,) = (tmp_path / "snapshots/manifests").glob(f"*/{made}.1")
    manifest.write_text("{")
    found["manifest"] = run(tmp_path)
    for words, result in found.items():
        assert result.exit_code == 1
        assert made in result.stderr
        assert words in result.stderr


def test_an_empty_home_has_an_empty_repository(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 0
    assert "snapshots\t0" in result.stdout
