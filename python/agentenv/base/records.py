"""Small durable records: JSON documents by key in SQLite (WAL), written by one thread."""

import contextlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import aiosqlite

from agentenv.base.errors import Corrupt, Unavailable

_SCHEMA_VERSION = 1


class RecordsUnavailable(Unavailable):
    """The record database cannot be read or written."""

    code = "records_unavailable"


class Records:
    """A table of JSON objects by (kind, key).

    Promises: when `put` or `delete` returns, the change survives the death of this process (and, with
    `synchronous=FULL`, of the host); a reader sees a whole document or none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: aiosqlite.Connection | None = None

    async def open(self) -> None:
        """Open or create the database. Raises `Corrupt` when it belongs to a newer program or is damaged."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._make_private()
        try:
            connection = await aiosqlite.connect(self._path, isolation_level=None)
            self._connection = connection
            await connection.execute("PRAGMA journal_mode=WAL")
            await connection.execute("PRAGMA synchronous=FULL")
            await connection.execute("PRAGMA busy_timeout=5000")
            await self._migrate(connection)
        except sqlite3.DatabaseError as error:
            await self.close()
            raise Corrupt(f"the record database {self._path} cannot be opened: {error}") from error

    def _make_private(self) -> None:
        """Records hold tokens. SQLite gives its log, which holds them too, the mode that the database has by then."""
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self._path.with_name(self._path.name + suffix).chmod(0o600)

    async def _migrate(self, connection: aiosqlite.Connection) -> None:
        async with connection.execute("PRAGMA user_version") as cursor:
            row = await cursor.fetchone()
        version = int(row[0]) if row else 0
        if version > _SCHEMA_VERSION:
            raise Corrupt(
                f"the record database {self._path} has version {version}, this program knows {_SCHEMA_VERSION}: "
                "run the newer program, or move the file away"
            )
        if version < _SCHEMA_VERSION:
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS record (kind TEXT NOT NULL, key TEXT NOT NULL, document TEXT NOT NULL, "
                "PRIMARY KEY (kind, key)) WITHOUT ROWID"
            )
            await connection.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")

    async def close(self) -> None:
        """Close the database. Can be called again."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def put(self, kind: str, key: str, document: dict[str, Any]) -> None:
        """Write a document, replacing the one of the same key."""
        await self._execute(
            "INSERT INTO record VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET document = excluded.document",
            (kind, key, json.dumps(document, separators=(",", ":"))),
        )

    async def delete(self, kind: str, key: str) -> None:
        """Remove a document, if there is one."""
        await self._execute("DELETE FROM record WHERE kind = ? AND key = ?", (kind, key))

    async def all(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        """Return every document of a kind with its key. Raises `Corrupt` naming the first one that is no object."""
        connection = self._opened()
        async with connection.execute("SELECT key, document FROM record WHERE kind = ?", (kind,)) as cursor:
            rows = await cursor.fetchall()
        return [(key, _parse(kind, key, text)) for key, text in rows]

    async def _execute(self, statement: str, values: tuple[str, ...]) -> None:
        try:
            await self._opened().execute(statement, values)
        except sqlite3.Error as error:
            raise RecordsUnavailable(f"the record database {self._path} refused a write: {error}") from error

    def _opened(self) -> aiosqlite.Connection:
        if self._connection is None:
            raise RecordsUnavailable(f"the record database {self._path} is closed")
        return self._connection


def _parse(kind: str, key: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise Corrupt(f"record {kind}/{key} is not JSON") from error
    if not isinstance(document, dict):
        raise Corrupt(f"record {kind}/{key} is not an object")
    return document
