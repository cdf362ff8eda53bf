"""Group J: watched directories of the Python clients."""

import time
from typing import Any

import pytest
from e2b import FileNotFoundException, FilesystemEventType, InvalidArgumentException, SandboxException

line = pytest.mark.line
CREATE, WRITE = FilesystemEventType.CREATE, FilesystemEventType.WRITE
REMOVE, RENAME, CHMOD = FilesystemEventType.REMOVE, FilesystemEventType.RENAME, FilesystemEventType.CHMOD
Seen = set[tuple[str, FilesystemEventType]]


def events_until(watch: Any, expected: Seen) -> list[Any]:
    """Collect events until all expected ones have come, and return all."""
    events: list[Any] = []
    deadline = time.monotonic() + 20
    while not expected <= {(event.name, event.type) for event in events}:
        assert time.monotonic() < deadline, f"of {expected} only {events} came"
        events += watch.get_new_events()
        time.sleep(0.02)
    return events


@line("J01")
@pytest.mark.synchronous
def test_a_new_file_is_three_events_at_once(sandbox: Any, directory: str) -> None:
    watch = sandbox.files.watch_dir(directory)
    sandbox.files.write(f"{directory}/new.txt", "x")
    events = watch.get_new_events()
    watch.stop()
    assert [(event.name, event.type) for event in events] == [
        ("new.txt", CREATE),
        ("new.txt", CHMOD),
        ("new.txt", WRITE),
    ]


@line("J02", "J08")
def test_a_write_is_named_relative_to_the_watched_directory(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/file", "x")
    watch = sandbox.files.watch_dir(directory)
    sandbox.files.write(f"{directory}/file", "y")
    events_until(watch, {("file", WRITE)})
    watch.stop()


@line("J03")
def test_a_deep_watch_follows_new_directories(sandbox: Any, directory: str) -> None:
    sandbox.files.make_dir(f"{directory}/old")
    watch = sandbox.files.watch_dir(directory, recursive=True)
    sandbox.files.write(f"{directory}/old/file", "x")
    events_until(watch, {("old/file", WRITE)})
    sandbox.files.make_dir(f"{directory}/new")
    events_until(watch, {("new", CREATE)})
    sandbox.files.write(f"{directory}/new/file", "x")
    events_until(watch, {("new/file", WRITE)})
    watch.stop()


@line("J04")
def test_a_flat_watch_sees_nothing_below(sandbox: Any, directory: str) -> None:
    sandbox.files.make_dir(f"{directory}/sub")
    watch = sandbox.files.watch_dir(directory)
    sandbox.files.write(f"{directory}/sub/file", "x")
    sandbox.files.write(f"{directory}/last", "x")
    events = events_until(watch, {("last", WRITE)})
    watch.stop()
    assert not [event.name for event in events if event.name.startswith("sub/")]


@line("J05")
@pytest.mark.newest
def test_entries_come_with_what_is_still_there(sandbox: Any, directory: str) -> None:
    watch = sandbox.files.watch_dir(directory, include_entry=True)
    sandbox.files.write(f"{directory}/file", "x")
    events = events_until(watch, {("file", CREATE), ("file", WRITE)})
    for event in events:
        assert event.entry is not None, event
        assert (event.entry.path, event.entry.type.value) == (f"{directory}/file", "file")
    sandbox.files.remove(f"{directory}/file")
    (removal,) = [event for event in events_until(watch, {("file", REMOVE)}) if event.type is REMOVE]
    watch.stop()
    assert removal.entry is None


@line("J06")
def test_only_directories_are_watched(sandbox: Any, directory: str) -> None:
    with pytest.raises(FileNotFoundException):
        sandbox.files.watch_dir(f"{directory}/missing")
    sandbox.files.write(f"{directory}/file", "x")
    with pytest.raises((SandboxException, InvalidArgumentException)):
        sandbox.files.watch_dir(f"{directory}/file")


@line("J07")
@pytest.mark.synchronous
def test_a_stopped_watch_gives_nothing(sandbox: Any, directory: str) -> None:
    watch = sandbox.files.watch_dir(directory)
    watch.stop()
    with pytest.raises(SandboxException):
        watch.get_new_events()


@line("J10")
@pytest.mark.newest
def test_network_mounts_may_be_allowed(sandbox: Any, directory: str) -> None:
    watch = sandbox.files.watch_dir(directory, allow_network_mounts=True)
    sandbox.files.write(f"{directory}/file", "x")
    events_until(watch, {("file", CREATE)})
    watch.stop()


@line("J11")
def test_each_change_has_its_event(sandbox: Any, directory: str) -> None:
    sandbox.commands.run(f"cd {directory}; touch moved changed removed")
    watch = sandbox.files.watch_dir(directory)
    sandbox.commands.run(f"cd {directory}; mv moved renamed; chmod 600 changed; rm removed")
    events_until(watch, {("moved", RENAME), ("renamed", CREATE), ("changed", CHMOD), ("removed", REMOVE)})
    watch.stop()
