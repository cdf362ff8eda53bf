"""Kill -9 at any moment: the next server adopts what runs, explains and removes the rest, and leaks nothing."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from e2b import Sandbox

from agentenv.main.demo.scratch import DemoServerFailed, ScratchServer, scratch_server
from agentenv.main.home import Home
from agentenv.vmm.qemu.processes import find_orphans
from support.polling import wait_until
from support.server import access_to, leaks_of, real_home, real_server, settings_for_tests

SETTINGS = settings_for_tests(prefix="aenvkill", network="10.206.0.0/24", uid_base=350_000)


@pytest.fixture
def home(prepared: None) -> Iterator[Home]:
    with real_home("test-restart") as made:
        yield made


def create(server: ScratchServer) -> Sandbox:
    return Sandbox.create(timeout=600, request_timeout=120, **access_to(server))


def kill_server(server: ScratchServer) -> None:
    server.process.kill()
    server.process.wait()


def test_sandboxes_of_a_killed_server_are_adopted_with_all_they_do(home: Home) -> None:
    with scratch_server(home, SETTINGS) as first:
        sandbox = create(first)
        # Moved into place: a file that is being written is empty for as long as an emulated guest starts `date`.
        write = "date +%s%N > next && mv next alive"
        sandbox.commands.run(f"echo kept > state; while :; do {write}; sleep 0.1; done", background=True)
        kill_server(first)

    with real_server(home, SETTINGS) as second:
        again = Sandbox.connect(sandbox.sandbox_id, **access_to(second))
        assert again.files.read("state") == "kept\n"
        before = again.files.read("alive")
        again.commands.run("sleep 0.5")
        assert again.files.read("alive") != before
        assert again.get_info().metadata == {}
        fresh = create(second)
        assert fresh.commands.run("echo fresh").stdout == "fresh\n"
        assert again.kill()


def test_what_died_together_with_its_server_is_forgotten_and_removed(home: Home) -> None:
    with scratch_server(home, SETTINGS) as first:
        sandbox = create(first)
        kill_server(first)
        for process in find_orphans(home.sandboxes):
            os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not find_orphans(home.sandboxes))
        assert leaks_of(home, SETTINGS) != []

    with real_server(home, SETTINGS) as second:
        assert not Sandbox.kill(sandbox.sandbox_id, **access_to(second))
        assert list(home.sandboxes.iterdir()) == []
        assert list(home.blocks.writable.iterdir()) == []
        assert "sandbox_lost" in second.log.read_text()


def test_a_server_killed_in_the_middle_of_a_creation_leaves_nothing_for_the_next(home: Home) -> None:
    with scratch_server(home, SETTINGS) as first:
        failures: list[Exception] = []

        def fail_to_create() -> None:
            try:
                create(first)
            except Exception as error:
                failures.append(error)

        creating = threading.Thread(target=fail_to_create)
        creating.start()
        wait_until(lambda: find_orphans(home.sandboxes))
        kill_server(first)
        creating.join()
        assert failures
        assert find_orphans(home.sandboxes) != []

    with real_server(home, SETTINGS) as second:
        assert find_orphans(home.sandboxes) == []
        assert Sandbox.list(**access_to(second)).next_items() == []
        assert "orphan_ended" in second.log.read_text()


def test_a_detached_stop_leaves_sandboxes_for_the_next_server(home: Home) -> None:
    with scratch_server(home, SETTINGS, {"AENV_SERVER__DETACH_ON_STOP": "true"}) as first:
        sandbox = create(first)

    with real_server(home, SETTINGS) as second:
        again = Sandbox.connect(sandbox.sandbox_id, **access_to(second))
        assert again.commands.run("echo here").stdout == "here\n"


def test_a_monitor_that_is_killed_takes_its_sandbox_with_it_at_once(home: Home) -> None:
    with real_server(home, SETTINGS) as server:
        sandbox = create(server)
        (process,) = find_orphans(home.sandboxes)
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not sandbox.is_running())
        wait_until(lambda: not list(home.blocks.writable.iterdir()))
        assert "vmm_killed" in server.log.read_text()


def test_a_second_server_on_the_same_home_is_refused(home: Home) -> None:
    with (
        real_server(home, SETTINGS),
        pytest.raises(DemoServerFailed, match="another server uses"),
        scratch_server(home, SETTINGS),
    ):
        pass
