"""Groups A, B, C and K: the control plane through the Python clients."""

import contextlib
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    Sandbox,
    SandboxException,
    SandboxQuery,
    SandboxState,
)
from e2b.exceptions import NotFoundException

from contract.raw import ask, routing

pytestmark = pytest.mark.vm
line = pytest.mark.line
UNKNOWN = "nonexistingsandbox"


@pytest.fixture(scope="module")
def pair(machine: Any) -> Iterator[tuple[Any, Any]]:
    """Two sandboxes with metadata of their own, the older one first."""
    metadata = {"na me&=": f"& = % ü {uuid.uuid4().hex}"}
    options = {"timeout": 600, "request_timeout": 120, **machine.options}
    first = Sandbox.create(metadata=metadata | {"index": "1"}, **options)
    made = [first]
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [sandbox.kill() for sandbox in made])
        made.append(Sandbox.create(first.get_info().template_id, metadata=metadata | {"index": "2"}, **options))
        yield made[0], made[1]


def wait_until_gone(sandbox: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while sandbox.is_running():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@line("B04")
@pytest.mark.once
def test_the_first_command_is_never_too_early(create_sandbox: Any) -> None:
    for number in range(25):
        sandbox = create_sandbox()
        assert sandbox.commands.run(f"echo {number}").stdout == f"{number}\n"
        sandbox.kill()


@line("A04", "A06", "B01", "B02", "B03", "B04", "B05", "B06", "B08", "B09", "B16", "B17", "C09", "C10", "C22")
def test_a_new_sandbox_is_what_was_asked_for(create_sandbox: Any, sandboxes: Any, machine: Any) -> None:
    name = uuid.uuid4().hex
    sandbox = create_sandbox(metadata={"name": name}, envs={"FOO": "bar"}, timeout=300)

    assert sandbox.commands.run("echo $FOO").stdout == "bar\n"
    assert sandbox.sandbox_id.isalnum()
    assert sandbox.sandbox_id == sandbox.sandbox_id.lower()
    info = sandbox.get_info()
    assert (info.sandbox_id, info.name, info.state) == (sandbox.sandbox_id, "base", SandboxState.RUNNING)
    assert (info.metadata, info.cpu_count, info.memory_mb) == ({"name": name}, 2, 512)
    assert info.end_at - info.started_at == pytest.approx(timedelta(seconds=300), abs=timedelta(seconds=1))
    assert tuple(int(part) for part in info.envd_version.split(".")) >= (0, 6, 4)

    page = sandboxes.list(query=SandboxQuery(metadata={"name": name}), **machine.options)
    (listed,) = page.next_items()
    assert not page.has_next
    assert (listed.sandbox_id, listed.name, listed.template_id) == (sandbox.sandbox_id, "base", info.template_id)


@line("B07", "C15", "C17", "C18", "F19")
@pytest.mark.once
def test_a_sandbox_lives_as_long_as_it_may(create_sandbox: Any) -> None:
    sandbox = create_sandbox()
    sandbox.set_timeout(3)
    sandbox.set_timeout(600)
    time.sleep(3.5)
    assert sandbox.is_running()
    sandbox.set_timeout(1)
    wait_until_gone(sandbox, 15)
    with pytest.raises(NotFoundException):
        sandbox.set_timeout(10)


@line("C01", "C02", "C03", "C04", "C05", "C08")
def test_lists_filter_and_page(pair: tuple[Any, Any], sandboxes: Any, machine: Any) -> None:
    first, second = pair
    metadata = first.get_info().metadata
    shared = {"na me&=": metadata["na me&="]}

    def listed(limit: int = 100, **query: Any) -> list[str]:
        paginator = sandboxes.list(query=SandboxQuery(**{"metadata": shared} | query), limit=limit, **machine.options)
        found: list[str] = []
        while paginator.has_next:
            found += [one.sandbox_id for one in paginator.next_items()]
        return found

    newest_first = [second.sandbox_id, first.sandbox_id]
    assert listed() == listed(limit=1) == newest_first
    assert listed(metadata=metadata) == [first.sandbox_id]
    assert listed(metadata={"na me&=": metadata["na me&="].replace("%", "")}) == []
    assert listed(state=[SandboxState.RUNNING]) == newest_first
    assert listed(state=[SandboxState.PAUSED]) == []
    assert listed(state=[SandboxState.RUNNING, SandboxState.PAUSED]) == newest_first
    with pytest.raises(SandboxException, match="400"):
        listed(limit=101)


@line("C05", "C06", "C07")
@pytest.mark.newest
def test_lists_know_order_start_and_template(pair: tuple[Any, Any], sandboxes: Any, machine: Any) -> None:
    first, second = pair
    info = second.get_info()

    def listed(order: str | None = None, **query: Any) -> list[str]:
        page = sandboxes.list(query=SandboxQuery(**query), order=order, **machine.options).next_items()
        return [one.sandbox_id for one in page]

    ascending = listed(order="asc")
    assert ascending == listed(order="desc")[::-1]
    assert ascending.index(first.sandbox_id) < ascending.index(second.sandbox_id)
    assert listed(started_after=info.started_at)[-1] == second.sandbox_id
    assert info.sandbox_id not in listed(started_after=info.started_at + timedelta(seconds=1))
    assert listed(template=info.template_id) == listed(template="base")
    assert info.sandbox_id in listed(template="base")
    assert listed(template="no-such-template") == []


@line("A11", "C11", "C14", "C15", "C19", "D05", "K03")
@pytest.mark.once
def test_what_is_gone_is_not_found(create_sandbox: Any, sandboxes: Any, machine: Any) -> None:
    sandbox = create_sandbox()
    assert sandbox.kill()
    assert not sandbox.kill()
    assert not sandbox.is_running()
    assert not sandboxes.kill(UNKNOWN, **machine.options)
    for sandbox_id in (sandbox.sandbox_id, UNKNOWN, "not/even an id"):
        with pytest.raises(NotFoundException):
            sandboxes.get_info(sandbox_id, **machine.options)
        with pytest.raises(NotFoundException):
            sandboxes.set_timeout(sandbox_id, 10, **machine.options)
        with pytest.raises(NotFoundException):
            sandboxes.connect(sandbox_id, **machine.options)
    listed = sandboxes.list(**machine.options).next_items()
    assert sandbox.sandbox_id not in [one.sandbox_id for one in listed]
    with pytest.raises(NotFoundException):
        sandboxes.get_metrics(sandbox.sandbox_id, **machine.options)


@line("C12", "C13")
def test_lifecycle_and_network_are_told(tokened: Any) -> None:
    info = tokened.get_info()
    assert info.lifecycle["on_timeout"] == "pause"
    assert not info.lifecycle["auto_resume"]
    assert info.allow_internet_access is None


@line("D04", "D06")
def test_a_connection_only_extends(tokened: Any, sandboxes: Any, machine: Any) -> None:
    before = tokened.get_info().end_at
    second = sandboxes.connect(tokened.sandbox_id, timeout=10, **machine.options)
    assert second.get_info().end_at == before
    assert second.commands.run("echo $GLOBAL").stdout == "from the sandbox\n"


@line("B10", "B11", "B19")
@pytest.mark.newest
@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"template": "no-such"}, 404),
        ({"template": "base:no-such-tag"}, 404),
        ({"timeout": -1}, 400),
        ({"timeout": 0}, 400),
    ],
)
def test_what_cannot_be_made_is_refused(sandboxes: Any, machine: Any, options: dict[str, Any], status: int) -> None:
    with pytest.raises(SandboxException) as raised:
        sandboxes.create(**options, **machine.options)
    assert raised.value.status_code == status


@line("A02")
def test_a_wrong_key_is_an_authentication_error(sandboxes: Any, machine: Any) -> None:
    wrong = {**machine.options, "api_key": "e2b_" + "0" * 40}
    with pytest.raises(AuthenticationException):
        sandboxes.create(**wrong)
    with pytest.raises(AuthenticationException):
        sandboxes.get_info("x", **wrong)


@line("B14")
@pytest.mark.once
def test_an_idempotency_key_makes_one_sandbox(create_sandbox: Any) -> None:
    key = uuid.uuid4().hex
    first = create_sandbox(idempotency_key=key)
    assert create_sandbox(idempotency_key=key).sandbox_id == first.sandbox_id
    with pytest.raises(SandboxException) as raised:
        create_sandbox(idempotency_key=key, metadata={"another": "body"})
    assert raised.value.status_code == 422


@line("B22")
@pytest.mark.once
def test_a_gateway_that_fails_leaves_no_sandbox(sandboxes: Any, machine: Any) -> None:
    name = uuid.uuid4().hex
    with pytest.raises(Exception, match="MCP gateway"):
        sandboxes.create("base", mcp={}, metadata={"name": name}, request_timeout=120, **machine.options)
    assert sandboxes.list(query=SandboxQuery(metadata={"name": name}), **machine.options).next_items() == []


@line("B12")
@pytest.mark.once
def test_a_sandbox_without_the_internet_reaches_nothing(create_sandbox: Any) -> None:
    sandbox = create_sandbox(allow_internet_access=False)
    with pytest.raises(CommandExitException):
        # Documentation addresses have no host; a refusal must come before the time is up.
        sandbox.commands.run("curl --silent --max-time 20 http://203.0.113.1/", timeout=30)
    assert sandbox.get_info().allow_internet_access is False


@line("K01", "K02")
def test_metrics_are_read_for_a_time(tokened: Any) -> None:
    (reading, *_) = tokened.get_metrics()
    assert reading.timestamp.tzinfo is not None
    assert reading.cpu_count == 2
    assert 0 <= reading.cpu_used_pct <= 200
    assert 0 < reading.mem_used < reading.mem_total <= 512 << 20
    assert 0 < reading.disk_used < reading.disk_total
    past = reading.timestamp - timedelta(days=1)
    assert tokened.get_metrics(start=past - timedelta(hours=1), end=past) == []


@line("B23")
@pytest.mark.once
def test_clock_and_identity_are_its_own(pair: tuple[Any, Any]) -> None:
    identity = "cat /etc/machine-id /proc/sys/kernel/random/boot_id; hostname; head -c 16 /dev/urandom | base64"
    first, second = (one.commands.run(identity).stdout.splitlines() for one in pair)
    assert not set(first) & set(second)
    began = time.time()
    inside = float(pair[1].commands.run("date +%s.%N").stdout)
    assert began - 1 < inside < time.time() + 1


@line("P09", "B03", "P02")
@pytest.mark.once
@pytest.mark.parametrize("whose", ["nobody's", "an invented", "another sandbox's"])
def test_the_daemon_answers_only_to_its_own_token(pair: tuple[Any, Any], machine: Any, whose: str) -> None:
    token = {"nobody's": None, "an invented": "wrong", "another sandbox's": str(pair[1]._envd_access_token)}[whose]
    answer = ask(machine.url, "GET", "/envs", headers=routing(pair[0].sandbox_id, token=token))
    assert (answer.status, answer.document["code"]) == (401, 401)
