"""The verbs that keep, copy and bring back sandboxes."""

import json
from collections.abc import Awaitable, Callable

from agentenv.cli.verbs.snapshot import draw
from agentenv.client.base import Snapshot
from support.aenv import Finished
from support.fake_server import TOKEN, FakeServer

SANDBOX = "iabcdefghijklmnopqrst"
Run = Callable[..., Awaitable[Finished]]


async def test_pause_prints_what_is_paused_and_one_that_was_is_no_error(run: Run, server: FakeServer) -> None:
    server.add_sandbox("iother", state="paused")

    finished = await run("pause", SANDBOX, "iother", "inothing", "--strict")

    assert sorted(finished.stdout.split()) == sorted([SANDBOX.encode(), b"iother"])
    assert finished.code == 1
    assert b"aenv: cannot pause sandbox inothing" in finished.stderr
    (request,) = server.seen(f"POST /sandboxes/{SANDBOX}/pause")
    assert request.document == {"requireHealthyGuest": True}


async def test_pause_without_memory_says_so(run: Run, server: FakeServer) -> None:
    assert (await run("pause", SANDBOX, "--no-memory")).code == 0
    assert server.seen(f"POST /sandboxes/{SANDBOX}/pause")[0].document == {"memory": False}


async def test_a_conflict_that_is_no_pause_is_an_error(run: Run, server: FakeServer) -> None:
    document = {"code": 409, "message": "it is resuming", "error_code": "sandbox_is_resuming"}
    server.answer(f"POST /sandboxes/{SANDBOX}/pause", 409, document)

    finished = await run("pause", SANDBOX)

    assert (finished.code, finished.stdout) == (1, b"")
    assert b"it is resuming" in finished.stderr


async def test_resume_connects(run: Run, server: FakeServer) -> None:
    finished = await run("resume", SANDBOX, "--timeout", "2h", "--no-memory")

    assert finished == Finished(0, f"{SANDBOX}\n".encode(), b"")
    assert server.seen(f"POST /v2/sandboxes/{SANDBOX}/connect")[0].document == {"timeout": 7200, "memory": False}


async def test_timeout_moves_the_end(run: Run, server: FakeServer) -> None:
    assert await run("timeout", SANDBOX, "15m") == Finished(0, b"", b"")
    assert server.seen(f"POST /sandboxes/{SANDBOX}/timeout")[0].document == {"timeout": 900}


async def test_fork_prints_the_children(run: Run, server: FakeServer) -> None:
    finished = await run("fork", SANDBOX, "--count", "2", "--timeout", "1m")

    assert finished == Finished(0, b"ic000000000000000000\nic000000000000000001\n", b"")
    assert server.seen(f"POST /sandboxes/{SANDBOX}/fork")[0].document == {"count": 2, "timeout": 60}


async def test_a_fork_of_which_one_child_fails_says_so_and_prints_the_others(run: Run) -> None:
    finished = await run("fork", SANDBOX, "--count", "3")

    assert finished.code == 1
    assert len(finished.stdout.split()) == 2
    assert finished.stderr == b"aenv: a copy did not start: this node is full\n"


async def test_a_fork_as_json_holds_no_token(run: Run) -> None:
    finished = await run("fork", SANDBOX, "--count", "3", "--json")

    entries = json.loads(finished.stdout)
    assert [list(entry) for entry in entries] == [["sandboxID"], ["sandboxID"], ["error"]]
    assert TOKEN.encode() not in finished.stdout


async def test_more_children_than_the_server_takes_is_wrong_usage(run: Run, server: FakeServer) -> None:
    assert (await run("fork", SANDBOX, "--count", "17")).code == 2
    assert server.seen(f"POST /sandboxes/{SANDBOX}/fork") == []


async def test_the_life_of_snapshots(run: Run, server: FakeServer) -> None:
    assert await run("snapshot", "create", SANDBOX, "--name", "first") == Finished(0, b"s0\n", b"")
    assert (await run("snapshot", "create", SANDBOX, "--no-memory")).stdout == b"s1\n"
    requests = server.seen(f"POST /sandboxes/{SANDBOX}/snapshots")
    assert [request.document for request in requests] == [{"name": "first"}, {"memory": False}]

    listed = await run("snapshot", "list", "--sandbox", SANDBOX, "--name", "x")
    assert listed.stdout.splitlines() == [
        f"s1\t\t{SANDBOX}\t2026-11-01T10:00:00Z\t2048\ts0".encode(),
        f"s0\tfirst\t{SANDBOX}\t2026-11-01T10:00:00Z\t2048\t".encode(),
    ]
    assert server.seen("GET /snapshots")[0].query == {"limit": "100", "sandboxID": SANDBOX, "name": "x"}

    tree = json.loads((await run("snapshot", "tree", "first", "--json")).stdout)
    assert [(one["snapshotID"], one["parentID"]) for one in tree] == [("s0", None), ("s1", "s0")]

    deleted = await run("snapshot", "delete", "s0", "s0", "nothing")
    assert (deleted.code, deleted.stdout) == (1, b"s0\n")
    assert deleted.stderr == b"aenv: there is no snapshot nothing\n"


async def test_rollback_names_the_snapshot(run: Run, server: FakeServer) -> None:
    assert await run("rollback", SANDBOX, "first") == Finished(0, f"{SANDBOX}\n".encode(), b"")
    assert server.seen(f"POST /sandboxes/{SANDBOX}/rollback")[0].document == {"snapshotID": "first"}


async def test_start_says_what_happens_at_the_end(run: Run, server: FakeServer) -> None:
    await run("start", "--on-timeout", "kill")
    await run("start", "--on-timeout", "pause", "--auto-resume")
    await run("start")

    sent = [request.document for request in server.seen("POST /v2/sandboxes")]
    assert [one.get("autoPause") for one in sent] == [False, True, None]
    assert [one.get("autoResume") for one in sent] == [None, {"enabled": True}, None]


def a_snapshot(name: str, parent: str | None) -> Snapshot:
    return Snapshot(name, (), parent, None, None, 0, 0)


def test_a_tree_is_drawn_with_each_snapshot_behind_its_parent() -> None:
    tree = [a_snapshot(*one) for one in [("a", "gone"), ("b", "a"), ("c", "a"), ("d", "b"), ("e", None)]]

    drawn = [prefix + one.snapshot_id for one, prefix in draw(tree)]

    assert drawn == ["a", "├─ b", "│  └─ d", "└─ c", "e"]


def test_a_deep_tree_is_drawn() -> None:
    tree = [a_snapshot("0", None), *(a_snapshot(str(n), str(n - 1)) for n in range(1, 3000))]
    assert len(draw(tree)) == 3000
