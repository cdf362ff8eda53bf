"""A sandbox's life through the official SDK: create, find, extend, expire, kill."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from e2b import (
    AuthenticationException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxQuery,
    SandboxState,
    TimeoutException,
)

from support.server import Access


def test_a_new_sandbox_is_described_as_it_is(create_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = create_sandbox(metadata={"k y": "v&1=%"}, envs={"FOO": "bar"}, timeout=300)
    info = sandbox.get_info()

    assert info.sandbox_id == sandbox.sandbox_id
    assert (info.name, info.state, info.metadata) == ("base", SandboxState.RUNNING, {"k y": "v&1=%"})
    assert round((info.end_at - info.started_at).total_seconds()) == 300
    assert info.lifecycle is not None
    assert info.lifecycle["on_timeout"] == "pause"
    assert sandbox.commands.run("echo $FOO").stdout == "bar\n"
    assert sandbox.commands.run("echo $FOO", envs={"FOO": "other"}).stdout == "other\n"
    assert sandbox.is_running()


def test_a_list_filters_by_metadata_and_state(create_sandbox: Callable[..., Sandbox], access: Access) -> None:
    sandbox = create_sandbox(metadata={"which": "a&b=c d%"})

    def listed(**query: Any) -> list[str]:
        page = Sandbox.list(query=SandboxQuery(**query), limit=100, **access)
        return [one.sandbox_id for one in page.next_items()]

    assert listed(metadata={"which": "a&b=c d%"}) == [sandbox.sandbox_id]
    assert listed(metadata={"which": "a&b=c d"}) == []
    assert sandbox.sandbox_id in listed(state=[SandboxState.RUNNING])
    assert listed(state=[SandboxState.PAUSED]) == []


def test_a_killed_sandbox_is_gone_everywhere(create_sandbox: Callable[..., Sandbox], access: Access) -> None:
    sandbox = create_sandbox()

    assert sandbox.kill()
    assert not sandbox.kill()
    assert not sandbox.is_running()
    with pytest.raises(NotFoundException):
        Sandbox.connect(sandbox.sandbox_id, **access)
    with pytest.raises(NotFoundException):
        sandbox.get_info()


def test_a_second_client_connects_by_id_alone(sandbox: Sandbox, access: Access) -> None:
    second = Sandbox.connect(sandbox.sandbox_id, **access)
    assert second.commands.run("echo same $HOSTNAME").stdout == f"same {sandbox.sandbox_id}\n"


def test_an_expired_sandbox_stops_answering(create_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = create_sandbox()
    sandbox.set_timeout(1)

    deadline = time.monotonic() + 30
    while sandbox.is_running():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with pytest.raises(NotFoundException):
        sandbox.set_timeout(5)


def test_a_command_that_runs_when_its_sandbox_is_killed_says_why(create_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = create_sandbox()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            sandbox.commands.run("sleep 600", timeout=600)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not sandbox.commands.list():
        time.sleep(0.05)
    sandbox.kill()
    thread.join(60)

    assert not thread.is_alive()
    assert isinstance(raised[0], TimeoutException)
    assert "killed or reached its end of life" in str(raised[0])


def test_a_guest_that_powers_off_takes_its_sandbox_with_it(create_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = create_sandbox()
    sandbox.commands.run("kill -USR2 1", user="root", background=True)

    deadline = time.monotonic() + 60
    while is_known(sandbox):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not sandbox.is_running()


def is_known(sandbox: Sandbox) -> bool:
    try:
        sandbox.get_info()
    except NotFoundException:
        return False
    return True


@pytest.mark.parametrize(
    ("options", "status"), [({"template": "no-such"}, 404), ({"timeout": -1}, 400), ({"timeout": 10**9}, 400)]
)
def test_what_cannot_be_created_is_refused(access: Access, options: dict[str, Any], status: int) -> None:
    with pytest.raises(SandboxException) as refusal:
        Sandbox.create(**options, **access)
    assert refusal.value.status_code == status


def test_a_wrong_key_is_an_authentication_error(access: Access) -> None:
    with pytest.raises(AuthenticationException):
        Sandbox.create(**(access | {"api_key": "wrong"}))


def test_the_same_idempotency_key_makes_one_sandbox(
    create_sandbox: Callable[..., Sandbox],
) -> None:
    first = create_sandbox(idempotency_key="e2e-key-1")
    second = create_sandbox(idempotency_key="e2e-key-1")
    assert first.sandbox_id == second.sandbox_id


def test_metrics_of_the_guest_are_read(sandbox: Sandbox) -> None:
    readings = sandbox.get_metrics()
    assert readings
    assert readings[-1].cpu_count == 2
    assert 0 < readings[-1].mem_used < readings[-1].mem_total <= 512 * 2**20
    assert 0 < readings[-1].disk_used < readings[-1].disk_total
