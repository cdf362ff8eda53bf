"""Disks under guests that work on them: the daemon dies in every way, the host's disk fills, blocks are discarded."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2b import Sandbox, SandboxException
from e2b.sandbox.commands.command_handle import CommandExitException

from agentenv.base import mounts
from agentenv.base.process import ProcessIdentity
from agentenv.blocks.processes import find_daemon
from agentenv.main.demo.scratch import ScratchServer, scratch_server
from agentenv.main.home import Home
from support.polling import wait_until
from support.server import access_to, leaks_of, real_home, real_server, settings_for_tests

SETTINGS = settings_for_tests(prefix="aenvdisk", network="10.211.0.0/24", uid_base=400_000)
WORKLOAD = Path(__file__).with_name("disk_workload.py")


@pytest.fixture
def home(prepared: None) -> Iterator[Home]:
    with real_home("test-disks") as made:
        yield made


def create(server: ScratchServer) -> Sandbox:
    return Sandbox.create(timeout=600, request_timeout=120, **access_to(server))


def kill(*processes: ProcessIdentity) -> None:
    """Kill processes at once: they are stopped first, so that none replaces another meanwhile."""
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    for process in processes:
        process.kill()
    wait_until(lambda: not any(process.is_alive() for process in processes))


def test_guest_that_checks_all_it_writes_sees_nothing_of_killed_server_processes(home: Home) -> None:
    with real_server(home, SETTINGS) as server:
        sandbox = create(server)
        sandbox.files.write("workload.py", WORKLOAD.read_text())
        running = sandbox.commands.run("sudo python3 workload.py 25", background=True, timeout=300)
        seen: set[ProcessIdentity] = set()
        for _ in range(8):
            time.sleep(2)
            victims = find_daemon(home.blocks.state).servers
            kill(*victims)
            seen.update(victims)
            wait_until(lambda: set(find_daemon(home.blocks.state).servers) - seen)
        ended = running.wait()
        complaints = sandbox.commands.run("sudo dmesg | grep -iE 'i/o error|ext4-fs (error|warning)' || true").stdout

        assert ended.stdout.startswith("verified "), ended.stdout
        assert int(ended.stdout.split()[1]) > 20
        assert complaints == ""
        assert sandbox.commands.run("sudo sync && echo well").stdout == "well\n"
        assert "block_server_replaced" in server.log.read_text()


def test_death_of_the_supervisor_alone_costs_no_sandbox(home: Home) -> None:
    with real_server(home, SETTINGS) as server:
        sandbox = create(server)
        before = find_daemon(home.blocks.state)
        assert before.supervisor is not None

        kill(before.supervisor)

        assert sandbox.commands.run("echo here > file && sudo sync && cat file").stdout == "here\n"
        wait_until(lambda: find_daemon(home.blocks.state).supervisor not in {None, before.supervisor})
        assert create(server).commands.run("echo also").stdout == "also\n"
        assert find_daemon(home.blocks.state).servers == before.servers


def test_death_of_the_whole_daemon_ends_its_sandboxes_with_a_cause_and_new_ones_start(home: Home) -> None:
    with real_server(home, SETTINGS) as server:
        sandbox = create(server)

        kill(*find_daemon(home.blocks.state).all)

        wait_until(lambda: not sandbox.is_running())
        wait_until(lambda: not list(home.blocks.writable.iterdir()))
        story = server.log.read_text()
        assert "block_daemon_died" in story
        assert "disk_lost" in story
        assert create(server).commands.run("echo again").stdout == "again\n"


def test_what_died_together_with_daemon_and_server_is_explained_and_removed(home: Home) -> None:
    with scratch_server(home, SETTINGS) as first:
        sandbox = create(first)
        first.process.kill()
        first.process.wait()
        kill(*find_daemon(home.blocks.state).all)
        assert mounts.below(home.blocks.mount) != []
        assert leaks_of(home, SETTINGS) != []

    with real_server(home, SETTINGS) as second:
        assert not Sandbox.kill(sandbox.sandbox_id, **access_to(second))
        story = second.log.read_text()
        assert "disks_lost" in story
        assert "sandbox_lost" in story
        assert list(home.blocks.writable.iterdir()) == []


def test_no_sandbox_is_begun_below_the_reserve(home: Home) -> None:
    with (
        real_server(home, SETTINGS, {"AENV_BLOCKS__RESERVE_MIB": str(2**30)}) as server,
        pytest.raises(SandboxException, match=r"507: .*blocks\.reserve_mib"),
    ):
        create(server)


def test_full_host_is_an_error_in_the_guest_and_no_hang(home: Home) -> None:
    with small_file_system(home), scratch_server(home, SETTINGS, {"AENV_BLOCKS__RESERVE_MIB": "0"}) as server:
        sandbox, neighbour = create(server), create(server)
        fill = "sudo dd if=/dev/urandom of=/big bs=1M count=400 oflag=direct"
        with pytest.raises(CommandExitException, match="Input/output error"):
            sandbox.commands.run(fill, timeout=120)
        assert sandbox.commands.run("echo lives").stdout == "lives\n"
        assert sandbox.kill()
        neighbour.commands.run("sudo dd if=/dev/zero of=/small bs=1M count=20 oflag=direct")
    assert leaks_of(home, SETTINGS) == []


@contextmanager
def small_file_system(home: Home) -> Iterator[None]:
    """Put the writable layers of a home on a file system of 128 MiB."""
    home.blocks.make()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", home.blocks.writable), check=True)
    try:
        yield
    finally:
        subprocess.run(("umount", home.blocks.writable), check=True)


def test_what_a_guest_discards_is_given_back_to_the_host(home: Home) -> None:
    with real_server(home, SETTINGS) as server:
        sandbox = create(server)
        sandbox.commands.run("sudo dd if=/dev/urandom of=/big bs=1M count=100 && sudo sync", timeout=120)
        full = allocated(home.blocks.writable)
        sandbox.commands.run("sudo rm /big && sudo sync && sudo fstrim /", timeout=120)
        wait_until(lambda: full - allocated(home.blocks.writable) > 90 * 2**20)


def allocated(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*"))
