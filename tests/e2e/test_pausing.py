"""Pausing, resuming, forking and rolling back real machines: what runs in them must not notice."""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2b import Sandbox, SandboxState

import agentenv_core
from agentenv.main.demo.scratch import ScratchServer
from e2e.guest_programs import ask_counter, check_counter, start_counter, wait_until
from support.server import Access

CYCLES = 20


def pause(sandbox: Sandbox) -> None:
    assert sandbox.pause(request_timeout=120)


def resume(sandbox: Sandbox) -> None:
    sandbox.connect(timeout=600, request_timeout=120)


def test_a_program_its_file_and_its_server_go_on_after_a_pause(create_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = create_sandbox()
    start_counter(sandbox)
    before = check_counter(sandbox, 1)

    pause(sandbox)
    assert sandbox.get_info().state == SandboxState.PAUSED
    assert not sandbox.is_running()
    time.sleep(3)
    resume(sandbox)

    assert abs(float(sandbox.commands.run("date +%s.%N").stdout) - time.time()) < 1
    check_counter(sandbox, before)


def test_twenty_pauses_lose_nothing_and_do_not_slow_down(
    create_sandbox: Callable[..., Sandbox], server: ScratchServer, access: Access, tmp_path: Path
) -> None:
    sandbox = create_sandbox()
    start_counter(sandbox)
    count, resumes = 1, []
    for cycle in range(CYCLES):
        sandbox.files.write(f"cycle-{cycle}", f"content of {cycle}\n")
        count = ask_counter(sandbox)[0]
        pause(sandbox)
        begin = time.monotonic()
        resume(sandbox)
        resumes.append(time.monotonic() - begin)
        assert ask_counter(sandbox)[0] >= count
    check_counter(sandbox, count)
    found = sandbox.commands.run("cat " + " ".join(f"cycle-{cycle}" for cycle in range(CYCLES))).stdout
    assert found == "".join(f"content of {cycle}\n" for cycle in range(CYCLES))
    assert sorted(resumes[-5:])[2] < 2 * sorted(resumes[:5])[2] + 0.5

    sandbox.commands.run("sync", user="root")
    pause(sandbox)
    check_file_system(disk_of(server, sandbox), tmp_path / "disk.raw")


def disk_of(server: ScratchServer, sandbox: Sandbox) -> list[Path]:
    """Return the layers of the disk of a paused sandbox, as the repository has them."""
    repository = server.home.path / "snapshots"
    manifests = [document["manifest"] for document in documents(repository) if "manifest" in document]
    (manifest,) = [one for one in manifests if (one["sandbox_id"], one["kind"]) == (sandbox.sandbox_id, "pause")]
    return [
        repository / "layers" / layer["digest"].replace(":", "/") if layer["kind"] == "stored" else Path(layer["path"])
        for layer in manifest["disk_layers"]
    ]


def documents(root: Path) -> Iterator[Any]:
    for path in root.rglob("*"):
        if path.is_file() and path.stat().st_size < 1 << 20:
            with contextlib.suppress(ValueError):
                document = json.loads(path.read_bytes())
                if isinstance(document, dict):
                    yield document


def check_file_system(layers: list[Path], raw: Path) -> None:
    """Write a disk out flat, replay its journal, and let e2fsck find nothing."""
    agentenv_core.cat(layers, raw)
    subprocess.run(["e2fsck", "-E", "journal_only", "-y", raw], check=True, capture_output=True)
    checked = subprocess.run(["e2fsck", "-fn", raw], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_sixteen_children_are_each_their_own(create_sandbox: Callable[..., Sandbox], access: Access) -> None:
    parent = create_sandbox()
    start_counter(parent)
    before = check_counter(parent, 1)
    made = parent.fork(count=8, timeout=600, request_timeout=300)
    try:
        children = [child for child in made if isinstance(child, Sandbox)]
        assert len(children) == 8, made
        kernels, randoms = set(), set()
        for child in children:
            count, _, kernel = ask_counter(child)
            assert count >= before
            kernels.add(kernel)
            randoms.add(child.commands.run("head -c 16 /dev/urandom | base64").stdout)
            child.files.write("mine", child.sandbox_id)
        assert len(kernels) == len(randoms) == 8
        assert [child.files.read("mine") for child in children] == [child.sandbox_id for child in children]
        assert not parent.files.exists("mine")
        check_counter(children[0], before)
        check_counter(parent, before)
    finally:
        for one in made:
            if isinstance(one, Sandbox):
                one.kill()


def test_a_rollback_brings_back_memory_and_disk(
    create_sandbox: Callable[..., Sandbox], server: ScratchServer, access: Access
) -> None:
    sandbox = create_sandbox()
    start_counter(sandbox)
    sandbox.files.write("story", "chapter one\n")
    taken = sandbox.create_snapshot(request_timeout=120)
    count = ask_counter(sandbox)[0]
    sandbox.files.write("story", "chapter two\n")
    sandbox.commands.run("rm -rf /home/user/ask.py && pkill -f counter.py")

    answer = post(server, f"/sandboxes/{sandbox.sandbox_id}/rollback", {"snapshotID": taken.snapshot_id})

    assert answer["sandboxID"] == sandbox.sandbox_id
    assert sandbox.files.read("story") == "chapter one\n"
    assert ask_counter(sandbox)[0] <= count + 200
    check_counter(sandbox, 1)
    assert Sandbox.delete_snapshot(taken.snapshot_id, **access)


def post(server: ScratchServer, path: str, body: dict[str, Any]) -> Any:
    import httpx

    answer = httpx.post(server.url + path, json=body, headers={"X-API-KEY": server.key}, timeout=120)
    assert answer.status_code < 300, answer.text
    return answer.json()


def test_many_that_expire_together_are_paused(create_sandbox: Callable[..., Sandbox]) -> None:
    made = [create_sandbox() for _ in range(4)]
    for sandbox in made:
        sandbox.set_timeout(1)
    wait_until(lambda: all(one.get_info().state == SandboxState.PAUSED for one in made), 120)
    for sandbox in made:
        resume(sandbox)
        assert sandbox.commands.run("echo back").stdout == "back\n"


def test_an_outgoing_connection_of_the_life_before_ends(create_sandbox: Callable[..., Sandbox]) -> None:
    sandbox = create_sandbox()
    handle = sandbox.commands.run("exec sleep 300", background=True, timeout=0)
    pause(sandbox)
    resume(sandbox)
    listed = {process.pid for process in sandbox.commands.list()}
    assert handle.pid in listed
    assert sandbox.commands.kill(handle.pid)


@pytest.mark.parametrize("mode", ["full", "filesystem"])
def test_files_written_just_before_a_pause_are_there(create_sandbox: Callable[..., Sandbox], mode: Any) -> None:
    sandbox = create_sandbox()
    content = "".join(f"{number}\n" for number in range(200_000))
    sandbox.files.write("large", content)
    assert sandbox.pause(mode=mode, request_timeout=120)
    resume(sandbox)
    assert sandbox.files.read("large") == content
    assert re.fullmatch(r"\d+\n", sandbox.commands.run("wc -c < large").stdout)
