"""Records survive their process, are private, and refuse what they do not understand."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentenv.base.errors import Corrupt
from agentenv.base.records import Records, RecordsUnavailable


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[Records]:
    opened = Records(tmp_path / "state.db")
    await opened.open()
    yield opened
    await opened.close()


async def test_what_was_put_is_there_for_the_next_process(records: Records, tmp_path: Path) -> None:
    await records.put("kind", "a", {"n": 1})
    await records.put("kind", "a", {"n": 2})
    await records.put("kind", "b", {})
    await records.put("other", "a", {"n": 3})
    await records.delete("kind", "b")
    await records.close()

    reopened = Records(tmp_path / "state.db")
    await reopened.open()
    assert await reopened.all("kind") == [("a", {"n": 2})]
    await reopened.close()


async def test_records_and_their_log_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch(mode=0o644)  # of an earlier version
    records = Records(tmp_path / "state.db")
    await records.open()
    await records.put("kind", "a", {"token": "secret"})

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    await records.close()


async def test_a_closed_database_says_so(records: Records) -> None:
    await records.close()
    await records.close()
    with pytest.raises(RecordsUnavailable, match="closed"):
        await records.put("kind", "a", {})


async def test_a_document_that_is_no_object_is_named(records: Records, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state.db") as database:
        database.execute("INSERT INTO record VALUES ('kind', 'bad', '[')")
    database.close()
    with pytest.raises(Corrupt, match="kind/bad"):
        await records.all("kind")


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is not a database" * 100)
    with pytest.raises(Corrupt, match="cannot be opened"):
        await Records(tmp_path / "state.db").open()


async def test_a_database_of_a_newer_program_is_refused(records: Records, tmp_path: Path) -> None:
    await records.close()
    with sqlite3.connect(tmp_path / "state.db") as database:
        database.execute("PRAGMA user_version=99")
    database.close()
    newer = Records(tmp_path / "state.db")
    with pytest.raises(Corrupt, match="version 99"):
        await newer.open()
    await newer.close()
