"""Servers that are stopped or killed while sandboxes are paused, or are being captured: nothing is lost, or left."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from e2b import Sandbox, SandboxState

from agentenv.main.demo.scratch import ScratchServer, scratch_server
from agentenv.main.home import Home
from agentenv.vmm.qemu.processes import find_orphans
from e2e.guest_programs import ask_counter, check_counter, start_counter, wait_until
from support.server import access_to, leaks_of, real_home, real_server, settings_for_tests

SETTINGS = settings_for_tests(prefix="aenvlife", network="10.207.0.0/24", uid_base=360_000)


@pytest.fixture
def home(prepared: None) -> Iterator[Home]:
    with real_home("test-lives") as made:
        yield made


def create(server: ScratchServer) -> Sandbox:
    return Sandbox.create(timeout=600, request_timeout=120, **access_to(server))


def connect(sandbox: Sandbox, server: ScratchServer) -> Sandbox:
    return Sandbox.connect(sandbox.sandbox_id, timeout=600, request_timeout=120, **access_to(server))


def kill_server(server: ScratchServer) -> None:
    server.process.kill()
    server.process.wait()


def test_a_stop_pauses_and_the_next_server_resumes(home: Home) -> None:
    with scratch_server(home, SETTINGS) as first:
        sandbox, other = create(first), create(first)
        start_counter(sandbox)
        count = check_counter(sandbox, 1)
        other.pause(request_timeout=120)
    assert find_orphans(home.sandboxes) == []
    assert leaks_of(home, SETTINGS) == []

    with real_server(home, SETTINGS) as second:
        assert Sandbox.get_info(sandbox.sandbox_id, **access_to(second)).state == SandboxState.PAUSED
        check_counter(connect(sandbox, second), count)
        assert connect(other, second).commands.run("echo back").stdout == "back\n"
        assert Sandbox.kill(other.sandbox_id, **access_to(second))


@pytest.mark.parametrize("verb", ["pause", "snapshot", "fork"])
@pytest.mark.parametrize("after_seconds", [0.05, 0.5])
def test_a_server_killed_in_the_middle_of_a_capture_loses_nothing(home: Home, verb: str, after_seconds: float) -> None:
    verbs: dict[str, Callable[[Sandbox], object]] = {
        "pause": lambda one: one.pause(request_timeout=60),
        "snapshot": lambda one: one.create_snapshot(request_timeout=60),
        "fork": lambda one: one.fork(count=2, timeout=600, request_timeout=60),
    }
    with scratch_server(home, SETTINGS) as first:
        sandbox = create(first)
        start_counter(sandbox)
        count = check_counter(sandbox, 1)

        def ask() -> None:
            # It may be faster than the kill.
            with contextlib.suppress(Exception):
                verbs[verb](sandbox)

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(after_seconds)
        kill_server(first)
        asking.join()

    with real_server(home, SETTINGS) as second:
        again = connect(sandbox, second)
        check_counter(again, count)
        again.pause(request_timeout=120)
        check_counter(connect(sandbox, second), count)
        for one in Sandbox.list(**access_to(second)).next_items():
            Sandbox.kill(one.sandbox_id, **access_to(second))
        wait_until(lambda: not list(home.sandboxes.iterdir()))
        assert find_orphans(home.sandboxes) == []


def test_a_monitor_killed_after_a_resume_brings_back_the_checkpoint(home: Home) -> None:
    with real_server(home, SETTINGS) as server:
        sandbox = create(server)
        start_counter(sandbox)
        sandbox.pause(request_timeout=120)
        resumed = connect(sandbox, server)
        count = ask_counter(resumed)[0]
        (process,) = find_orphans(home.sandboxes)
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: sandbox.get_info().state == SandboxState.PAUSED)

        again = connect(sandbox, server)
        assert ask_counter(again)[0] <= count + 200
        check_counter(again, 1)
        assert Sandbox.kill(sandbox.sandbox_id, **access_to(server))


def test_a_host_that_went_down_leaves_what_was_paused(home: Home) -> None:
    with scratch_server(home, SETTINGS) as first:
        kept, lost = create(first), create(first)
        kept.files.write("kept", "yes")
        kept.pause(request_timeout=120)
        connect(kept, first)
        kill_server(first)
        for process in find_orphans(home.sandboxes):
            os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not find_orphans(home.sandboxes))

    with real_server(home, SETTINGS) as second:
        states = {one.sandbox_id: one.state for one in Sandbox.list(**access_to(second)).next_items()}
        assert states == {kept.sandbox_id: SandboxState.PAUSED}
        assert connect(kept, second).files.read("kept") == "yes"
        assert not Sandbox.kill(lost.sandbox_id, **access_to(second))
        log = second.log.read_text()
        assert "sandbox_paused_at_start" in log
        assert "sandbox_lost" in log
