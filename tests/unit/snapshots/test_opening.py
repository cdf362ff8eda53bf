"""Opening by settings: what is remembered from one start to the next, and what is made anew."""

from pathlib import Path

import pytest

from agentenv.base.clock import SystemClock
from agentenv.objects.errors import StoreUnfit
from agentenv.objects.settings import ObjectsSettings
from agentenv.snapshots.base import SnapshotQuery
from agentenv.snapshots.opening import open_repository
from agentenv.snapshots.settings import RepositoryKind, SnapshotsSettings
from support.snapshots import publish

OBJECTS = ObjectsSettings()


@pytest.mark.parametrize("damage", [b"", b"this is no database", b"SQLite format 3\0" + b"\1" * 500])
async def test_the_next_start_lists_what_the_last_one_published(tmp_path: Path, damage: bytes) -> None:
    settings = SnapshotsSettings()
    async with open_repository(settings, OBJECTS, tmp_path, SystemClock()) as repository:
        made = await publish(repository, b"disk", names=("x:default",))
    name = (tmp_path / "repository/node").read_text()
    if damage:
        (tmp_path / "repository/index.db").write_bytes(damage)
    async with open_repository(settings, OBJECTS, tmp_path, SystemClock()) as repository:
        page = await repository.list(SnapshotQuery(name="x"))
    assert [summary.snapshot_id for summary in page.snapshots] == [made.snapshot_id]
    assert (tmp_path / "repository/node").read_text() == name


async def test_the_directory_is_for_root_alone(tmp_path: Path) -> None:
    """Manifests hold the tokens of sandboxes."""
    elsewhere = tmp_path / "elsewhere"
    async with open_repository(SnapshotsSettings(directory=elsewhere), OBJECTS, tmp_path, SystemClock()):
        assert elsewhere.stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "snapshots").exists()


async def test_a_bucket_without_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnfit, match=r"objects\.endpoint"):
        async with open_repository(SnapshotsSettings(repository=RepositoryKind.OSS), OBJECTS, tmp_path, SystemClock()):
            pass
