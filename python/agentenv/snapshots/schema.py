"""The tables of a node's memory of the repository, and how a file of another version is replaced. Blocking."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

VERSION = 2

_TABLES = """
CREATE TABLE snapshot (
    id TEXT PRIMARY KEY, version TEXT NOT NULL, state TEXT NOT NULL, since REAL NOT NULL,
    kind TEXT, created_at INTEGER, parent_id TEXT, sandbox_id TEXT, template_id TEXT, vcpus INTEGER,
    memory_mib INTEGER, disk_size_bytes INTEGER, own_bytes INTEGER, has_memory INTEGER, envd_version TEXT
) WITHOUT ROWID;
CREATE INDEX snapshot_by_time ON snapshot (kind, created_at, id);
CREATE INDEX snapshot_by_sandbox ON snapshot (sandbox_id, created_at, id);
CREATE INDEX snapshot_by_template ON snapshot (template_id, created_at, id);
CREATE INDEX snapshot_by_parent ON snapshot (parent_id, created_at);
CREATE INDEX snapshot_by_state ON snapshot (state) WHERE state <> 'whole';
CREATE TABLE file (
    digest TEXT NOT NULL, snapshot_id TEXT NOT NULL, is_stored INTEGER NOT NULL, PRIMARY KEY (digest, snapshot_id)
) WITHOUT ROWID;
CREATE INDEX file_by_snapshot ON file (snapshot_id);
CREATE INDEX file_outside ON file (digest) WHERE is_stored = 0;
CREATE TABLE name (key TEXT PRIMARY KEY, version TEXT NOT NULL, snapshot_id TEXT) WITHOUT ROWID;
CREATE INDEX name_by_snapshot ON name (snapshot_id);
CREATE TABLE lease (holder TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (holder, digest)) WITHOUT ROWID;
CREATE INDEX lease_by_digest ON lease (digest);
CREATE TABLE since (topic TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (topic, key)) WITHOUT ROWID;
CREATE TABLE merged (key TEXT PRIMARY KEY, digest TEXT NOT NULL, size_bytes INTEGER NOT NULL, weight INTEGER NOT NULL);
CREATE INDEX merged_by_digest ON merged (digest);
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file. One that is damaged or of another version is made anew: the store knows what it knew."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        connection = _open(path)
        if _version(connection) == VERSION:
            return connection
        connection.close()
    except sqlite3.DatabaseError:
        pass
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()
    connection = _open(path)
    connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Make everything that is done in the block happen, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # Losing the last changes with the host costs nothing: the next refresh finds them in the store again.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA busy_timeout = 5000")
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
