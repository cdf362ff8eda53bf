"""Group E: forks and snapshots through the Python clients."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from e2b import SandboxException
from e2b.exceptions import NotFoundException

from contract.raw import ask, routing
from contract.test_pause import counted, key, start_counting, wait_until

pytestmark = [pytest.mark.vm, pytest.mark.newest]
line = pytest.mark.line
RANDOM = "head -c 16 /dev/urandom | base64"


@pytest.fixture
def source(create_sandbox: Any) -> Any:
    """A sandbox with a past."""
    sandbox = create_sandbox(metadata={"which": "source"}, envs={"FOO": "bar"})
    sandbox.commands.run("echo before > past")
    return sandbox


@pytest.fixture
def born() -> Iterator[list[Any]]:
    """Whatever else a test has made, killed at its end."""
    made: list[Any] = []
    yield made
    for sandbox in made:
        sandbox.kill()


@line("E01", "E02", "E03", "E05", "E06", "E07", "E13")
def test_children_share_the_past_and_nothing_else(source: Any, born: list[Any], machine: Any) -> None:
    start_counting(source)
    before, end = counted(source), source.get_info().end_at

    children = source.fork(count=2, timeout=600, request_timeout=120)
    born += children

    ids = {source.sandbox_id, *(child.sandbox_id for child in children)}
    assert len(ids) == 3
    assert source.get_info().end_at == end
    everybody = [source, *children]
    for one in everybody:
        assert one.is_running()
        assert one.commands.run("cat past; echo $FOO").stdout == "before\nbar\n"
        assert one.get_info().metadata == {"which": "source"}
        now = counted(one)
        assert now >= before
        wait_until(lambda one=one, now=now: counted(one) > now)
        one.files.write("future", one.sandbox_id)
    assert [one.files.read("future") for one in everybody] == [one.sandbox_id for one in everybody]
    assert len({one.commands.run(RANDOM).stdout for one in everybody}) == 3
    assert all(one.commands.run("hostname").stdout == f"{one.sandbox_id}\n" for one in everybody)
    assert len({one._envd_access_token for one in everybody}) == 3
    stranger = routing(children[0].sandbox_id, token=source._envd_access_token)
    assert ask(machine.url, "GET", "/envs", headers=stranger).status == 401


@line("E04", "E08", "E09", "E11")
@pytest.mark.once
def test_what_cannot_be_forked(source: Any, born: list[Any], sandboxes: Any, machine: Any) -> None:
    path = f"/sandboxes/{source.sandbox_id}/fork"
    for count in (0, 17, 100):
        assert ask(machine.url, "POST", path, headers=key(machine), body={"count": count}).status == 400
    (child,) = ask(machine.url, "POST", path, headers=key(machine)).document
    born.append(sandboxes.connect(child["sandbox"]["sandboxID"], **machine.options))
    source.pause()
    assert ask(machine.url, "POST", path, headers=key(machine)).status == 409
    source.kill()
    with pytest.raises(NotFoundException):
        sandboxes.fork(source.sandbox_id, **machine.options)


@line("E14", "E15", "E16", "E17", "E18", "E20", "B20")
def test_the_life_of_a_snapshot(source: Any, create_sandbox: Any, sandboxes: Any, machine: Any) -> None:
    name = f"named-{uuid.uuid4().hex[:8]}"
    taken = source.create_snapshot(name=name, request_timeout=120)
    assert taken.snapshot_id
    assert any(name in one for one in taken.names)
    assert source.is_running()
    source.commands.run("echo after > past")
    newer = source.create_snapshot(name=name, request_timeout=120)

    def listed(**query: Any) -> set[str]:
        paginator = sandboxes.list_snapshots(**query, **machine.options)
        found: set[str] = set()
        while paginator.has_next:
            found |= {one.snapshot_id for one in paginator.next_items()}
        return found

    assert {taken.snapshot_id, newer.snapshot_id} <= listed()
    assert listed(sandbox_id=source.sandbox_id) == {taken.snapshot_id, newer.snapshot_id}
    assert listed(name=name) == {newer.snapshot_id}
    assert listed(name="no-such-name") == set()

    source.kill()
    first = create_sandbox(template=taken.snapshot_id)
    second = create_sandbox(template=taken.snapshot_id)
    assert first.files.read("past") == second.files.read("past") == "before\n"
    first.files.write("past", "mine")
    assert second.files.read("past") == "before\n"
    assert create_sandbox(template=name).files.read("past") == "after\n"

    for one in (taken, newer):
        assert sandboxes.delete_snapshot(one.snapshot_id, **machine.options) is True
        assert sandboxes.delete_snapshot(one.snapshot_id, **machine.options) is False
    with pytest.raises(SandboxException):
        create_sandbox(template=taken.snapshot_id)


@line("E05", "E21")
@pytest.mark.once
def test_processes_go_on_in_a_sandbox_from_a_snapshot_that_is_deleted(
    source: Any, create_sandbox: Any, sandboxes: Any, machine: Any
) -> None:
    start_counting(source)
    taken = source.create_snapshot(request_timeout=120)
    made = create_sandbox(template=taken.snapshot_id)
    assert sandboxes.delete_snapshot(taken.snapshot_id, **machine.options)
    now = counted(made)
    wait_until(lambda: counted(made) > now)
    assert abs(float(made.commands.run("date +%s.%N").stdout) - time.time()) < 1
    made.pause()
    made.connect(timeout=600, request_timeout=120)
    assert made.files.read("past") == "before\n"


@line("E19")
@pytest.mark.once
def test_a_snapshot_of_the_file_system_boots_cold(
    source: Any, create_sandbox: Any, sandboxes: Any, machine: Any
) -> None:
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    taken = source.create_snapshot(mode="filesystem", request_timeout=120)
    made = create_sandbox(template=taken.snapshot_id)
    assert made.files.read("past") == "before\n"
    assert made.commands.run(boot_id).stdout != source.commands.run(boot_id).stdout
    assert sandboxes.delete_snapshot(taken.snapshot_id, **machine.options)


@line("E22")
@pytest.mark.once
def test_names_with_slashes_and_colons_work(source: Any, create_sandbox: Any, sandboxes: Any, machine: Any) -> None:
    name = f"team/n{uuid.uuid4().hex[:8]}:one"
    source.create_snapshot(name=name, request_timeout=120)
    assert create_sandbox(template=name).files.read("past") == "before\n"
    assert sandboxes.delete_snapshot(name, **machine.options) is True
    assert sandboxes.delete_snapshot(name, **machine.options) is False
