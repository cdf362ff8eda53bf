"""Group D: pausing and resuming through the Python clients."""

import json
import threading
import time
from typing import Any

import pytest
from e2b import SandboxQuery, SandboxState
from e2b.exceptions import NotFoundException, SandboxException, TimeoutException

from contract.raw import ask, routing

pytestmark = pytest.mark.vm
line = pytest.mark.line
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
# A variable of a program, which its memory alone holds.
REMEMBER = """
import itertools, os, time
for n in itertools.count():
    open('/tmp/new', 'w').write(str(n))
    os.replace('/tmp/new', '/tmp/n')  # read at any moment, and never empty
    time.sleep(.05)
"""


def start_counting(sandbox: Any) -> None:
    sandbox.files.write("count.py", REMEMBER)
    sandbox.commands.run("exec python3 count.py", background=True, timeout=0)
    wait_until(lambda: counted(sandbox) > 0)


def counted(sandbox: Any) -> int:
    try:
        return int(sandbox.files.read("/tmp/n") or 0)
    except NotFoundException:
        return 0


def wait_until(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def boot_id(sandbox: Any) -> str:
    return str(sandbox.commands.run(BOOT_ID).stdout)


@line("D01", "D02", "D07", "D15", "D19", "D24", "C01", "C02", "C09", "C20")
def test_a_pause_keeps_everything(create_sandbox: Any, sandboxes: Any, machine: Any) -> None:
    sandbox = create_sandbox(envs={"FOO": "bar"})
    start_counting(sandbox)
    sandbox.commands.run("echo kept > /dev/shm/kept; echo kept > kept")
    before, born = counted(sandbox), boot_id(sandbox)

    assert sandbox.pause() is True
    assert not sandbox.is_running()
    assert sandbox.pause() is False
    info = sandbox.get_info()
    assert info.state == SandboxState.PAUSED
    page = sandboxes.list(query=SandboxQuery(state=[SandboxState.PAUSED]), **machine.options).next_items()
    assert sandbox.sandbox_id in [one.sandbox_id for one in page]
    with pytest.raises(NotFoundException):
        sandbox.set_timeout(10)

    again = sandboxes.connect(sandbox.sandbox_id, timeout=600, request_timeout=120, **machine.options)
    assert again.is_running()
    assert abs(float(again.commands.run("date +%s.%N").stdout) - time.time()) < 1
    assert again.commands.run("cat /dev/shm/kept kept; echo $FOO").stdout == "kept\nkept\nbar\n"
    assert boot_id(again) == born
    assert counted(again) >= before
    resumed = counted(again)
    wait_until(lambda: counted(again) > resumed)


@line("D08", "D24")
@pytest.mark.newest
@pytest.mark.once
def test_a_pause_of_the_file_system_reboots(create_sandbox: Any, machine: Any) -> None:
    sandbox = create_sandbox(envs={"FOO": "bar"})
    born = boot_id(sandbox)
    sandbox.commands.run("echo kept > kept; echo lost > /dev/shm/lost")

    assert sandbox.pause(mode="filesystem") is True
    detail = ask(machine.url, "GET", f"/sandboxes/{sandbox.sandbox_id}", headers=key(machine)).document
    assert (detail["state"], detail["pauseMode"]) == ("paused", "filesystem")
    sandbox.connect(request_timeout=120)

    assert boot_id(sandbox) != born
    assert sandbox.commands.run("cat kept; ls /dev/shm; echo $FOO").stdout == "kept\nbar\n"


@line("D09", "D24")
@pytest.mark.newest
@pytest.mark.once
def test_a_resume_can_reboot(create_sandbox: Any) -> None:
    sandbox = create_sandbox(envs={"FOO": "bar"})
    born = boot_id(sandbox)
    sandbox.commands.run("echo kept > kept")
    sandbox.pause()

    sandbox.connect(on_resume="reboot", request_timeout=120)

    assert boot_id(sandbox) != born
    assert sandbox.commands.run("cat kept; echo $FOO").stdout == "kept\nbar\n"


@line("D10", "D12", "C12")
@pytest.mark.newest
@pytest.mark.once
def test_a_sandbox_can_be_paused_when_its_time_is_up(create_sandbox: Any, machine: Any) -> None:
    sandbox = create_sandbox(lifecycle={"on_timeout": "pause"})
    assert sandbox.get_info().lifecycle["on_timeout"] == "pause"
    sandbox.commands.run("echo kept > kept")
    sandbox.set_timeout(1)
    wait_until(lambda: sandbox.get_info().state == SandboxState.PAUSED)

    answer = ask(machine.url, "GET", "/", headers=routing(sandbox.sandbox_id, 8000))
    assert (answer.status, answer.document["message"]) == (502, "The sandbox was not found")
    assert sandbox.get_info().state == SandboxState.PAUSED
    sandbox.connect(timeout=600, request_timeout=120)
    assert sandbox.files.read("kept") == "kept\n"


@line("D11")
@pytest.mark.newest
@pytest.mark.once
def test_its_file_system_alone_can_be_kept_when_its_time_is_up(create_sandbox: Any) -> None:
    sandbox = create_sandbox(lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
    born = boot_id(sandbox)
    sandbox.set_timeout(1)
    wait_until(lambda: sandbox.get_info().state == SandboxState.PAUSED)
    sandbox.connect(timeout=600, request_timeout=120)
    assert boot_id(sandbox) != born


@line("D13", "D14", "C12")
@pytest.mark.newest
@pytest.mark.once
def test_traffic_wakes_a_sandbox(create_sandbox: Any, machine: Any) -> None:
    sandbox = create_sandbox(lifecycle={"on_timeout": "pause", "auto_resume": True})
    assert sandbox.get_info().lifecycle["auto_resume"]
    sandbox.commands.run("exec python3 -m http.server 8000", background=True, timeout=0)
    wait_until(lambda: ask(machine.url, "GET", "/", headers=routing(sandbox.sandbox_id, 8000)).status == 200)
    sandbox.pause()

    answers: list[int] = []

    def fetch() -> None:
        answers.append(ask(machine.url, "GET", "/", headers=routing(sandbox.sandbox_id, 8000)).status)

    fetching = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in fetching:
        thread.start()
    for thread in fetching:
        thread.join()
    assert answers == [200] * 4
    assert sandbox.get_info().state == SandboxState.RUNNING

    sandbox.pause()
    refused = ask(machine.url, "GET", "/envs", headers=routing(sandbox.sandbox_id, token="wrong"))
    assert refused.status == 403
    assert sandbox.get_info().state == SandboxState.PAUSED
    assert sandbox.commands.run("echo awake").stdout == "awake\n"


@line("D03", "D21")
@pytest.mark.once
def test_connects_of_both_generations_say_whether_they_resumed(create_sandbox: Any, machine: Any) -> None:
    sandbox = create_sandbox()
    for path, body in (("/v2/sandboxes/{}/connect", {}), ("/sandboxes/{}/connect", {"timeout": 300})):
        where = path.format(sandbox.sandbox_id)
        assert ask(machine.url, "POST", where, headers=key(machine), body=body).status == 200
        sandbox.pause()
        resumed = ask(machine.url, "POST", where, headers=key(machine), body=body)
        assert (resumed.status, resumed.document["envdAccessToken"]) == (201, sandbox._envd_access_token)


@line("D16", "D17")
@pytest.mark.newest
@pytest.mark.once
def test_a_silent_daemon_is_told(create_sandbox: Any) -> None:
    from e2b.exceptions import GuestUnresponsiveException, ServiceBusyException

    sandbox = create_sandbox()
    sandbox.commands.run("echo kept > kept; sync")
    freeze_daemon(sandbox)
    with pytest.raises(ServiceBusyException):
        sandbox.pause(strict=True, request_timeout=120)
    assert sandbox.get_info().state == SandboxState.RUNNING

    assert sandbox.pause(request_timeout=120) is True
    assert sandbox.get_info().envd_unresponsive_at_pause
    with pytest.raises(GuestUnresponsiveException):
        sandbox.connect(request_timeout=120)
    sandbox.connect(on_resume="reboot", request_timeout=120)
    assert sandbox.files.read("kept") == "kept\n"


def freeze_daemon(sandbox: Any) -> None:
    """Stop the daemon, which does not live to answer the command that does it."""
    stop = "kill -STOP $(pgrep -o -x aenv-guest)"
    with pytest.raises((TimeoutException, NotFoundException, Exception)):
        sandbox.commands.run(stop, user="root", timeout=5)


@line("D18")
@pytest.mark.newest
@pytest.mark.once
def test_a_pause_during_a_snapshot_does_no_harm(create_sandbox: Any, sandboxes: Any, machine: Any) -> None:
    sandbox = create_sandbox()
    start_counting(sandbox)
    taken: list[Any] = []
    refused: list[str] = []

    def take() -> None:
        try:
            taken.append(sandbox.create_snapshot(request_timeout=120))
        except SandboxException as error:
            refused.append(str(error))

    taking = threading.Thread(target=take)
    taking.start()
    assert sandbox.pause(request_timeout=120) is True
    taking.join()
    # Which of the two came first is chance; a snapshot of what is being paused is refused.
    assert taken or "it is pausing" in refused[0]
    sandbox.connect(timeout=600, request_timeout=120)
    resumed = counted(sandbox)
    wait_until(lambda: counted(sandbox) > resumed)
    for one in taken:
        assert sandboxes.delete_snapshot(one.snapshot_id, **machine.options)


@line("D23")
@pytest.mark.once
def test_open_streams_are_closed_by_a_pause(create_sandbox: Any) -> None:
    sandbox = create_sandbox()
    handle = sandbox.commands.run("sleep 600", background=True, timeout=0)
    ended = threading.Event()

    def follow() -> None:
        with pytest.raises(Exception, match=r".*"):
            handle.wait()
        ended.set()

    following = threading.Thread(target=follow)
    following.start()
    sandbox.pause()
    assert ended.wait(20)
    following.join()


@line("D18", "C16")
@pytest.mark.once
def test_a_paused_sandbox_is_killed_like_any_other(create_sandbox: Any, sandboxes: Any, machine: Any) -> None:
    sandbox = create_sandbox()
    sandbox.pause()
    assert sandbox.kill() is True
    assert sandbox.kill() is False
    with pytest.raises(NotFoundException):
        sandboxes.connect(sandbox.sandbox_id, **machine.options)


def key(machine: Any) -> dict[str, str]:
    return {"X-API-KEY": machine.options["api_key"], "Content-Type": "application/json"}


def test_a_conflict_names_the_state(create_sandbox: Any, machine: Any) -> None:
    sandbox = create_sandbox()
    sandbox.pause()
    answer = ask(machine.url, "POST", f"/sandboxes/{sandbox.sandbox_id}/pause", headers=key(machine), body=b"{}")
    assert (answer.status, json.loads(answer.body)["error_code"]) == (409, "sandbox_is_paused")
