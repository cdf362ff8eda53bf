"""Ids, units and files."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentenv.base import files, ids, units


def test_ids_fit_a_dns_label_beside_a_port_and_differ() -> None:
    made = {ids.new_sandbox_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(f"65535-{one}") <= 63 and ids.parse_sandbox_id(one) == one for one in made)


def test_the_legacy_form_with_a_client_is_an_id() -> None:
    one = ids.new_sandbox_id()
    assert ids.parse_sandbox_id(f"{one}-client") == one
    assert ids.parse_sandbox_id(f"{one}-a-b") is None


@given(st.text())
def test_parsing_an_id_is_total(text: str) -> None:
    parsed = ids.parse_sandbox_id(text)
    assert parsed is None or text.startswith(parsed)


def test_ids_of_snapshots_are_uuids_that_sort_by_time() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    made = [ids.new_snapshot_id(begin + timedelta(milliseconds=number)) for number in range(100)]
    assert made == sorted(made)
    assert all(ids.parse_snapshot_id(one) == one for one in made)
    assert ids.parse_snapshot_id("base") is None


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (2**30, "1.0 GiB"), (5 * 2**40, "5.0 TiB")])
def test_bytes_are_written_for_people(count: int, text: str) -> None:
    assert units.format_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.012, "12 ms"), (3.44, "3.4 s"), (125, "2 min 5 s")])
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert units.format_seconds(seconds) == text


def test_a_file_is_replaced_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    files.write_atomically(path, b"one", mode=0o600)
    files.write_atomically(path, b"two", mode=0o600)

    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        files.write_atomically(target, b"x")
    assert list(tmp_path.iterdir()) == [target]
