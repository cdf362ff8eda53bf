"""The part of the demo in which one sandbox becomes many: pause, resume, snapshot, fork, rollback, and the tree."""

import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from agentenv.main.demo.scratch import ScratchServer
from agentenv.main.demo.story import Story, expect

if TYPE_CHECKING:
    from e2b import Sandbox

CHILDREN = 16
# It remembers in memory alone how far it is, so that a machine that was booted anew would be found out.
_COUNTER = "import itertools,time\nfor n in itertools.count(): open('/tmp/count','w').write(str(n)); time.sleep(.05)\n"


def tell_of_branches(story: Story, sandbox: "Sandbox", server: ScratchServer, address: Mapping[str, Any]) -> None:
    """Pause and resume a sandbox, then let it branch."""
    with story.step("start a program that counts in memory") as result:
        sandbox.files.write("counter.py", _COUNTER)
        sandbox.commands.run("exec python3 counter.py", background=True, timeout=0)
        result.append(f"it is at {_count(sandbox)}")
    with story.step("pause the sandbox") as result:
        before = _count(sandbox)
        expect(sandbox.pause(request_timeout=120), "the sandbox was paused already")
        expect(not sandbox.is_running(), "a paused sandbox answers")
        result.append(f"no process is left of it; the counter was at {before}")
    with story.step("resume it") as result:
        sandbox.connect(timeout=600, request_timeout=120)
        after = _count(sandbox)
        expect(after >= before, f"the counter went back from {before} to {after}")
        result.append(f"the counter goes on at {after}")
    with story.step("take a snapshot") as result:
        sandbox.files.write("chapter", "one\n")
        snapshot = sandbox.create_snapshot(name="chapter-one", request_timeout=120)
        result.append(snapshot.snapshot_id)
    children = _fork(story, sandbox)
    with story.step(f"let each of the {CHILDREN} do something else") as result:
        result.extend(_work(children))
    with story.step("roll one of them back to the snapshot") as result:
        child = children[-1]
        _call(server, "POST", f"/sandboxes/{child.sandbox_id}/rollback", {"snapshotID": "chapter-one"})
        text = child.files.read("chapter")
        expect(text == "one\n", f"after the rollback the file says {text!r}")
        child.create_snapshot(name="another-two", request_timeout=120)
        result.append(f"{child.sandbox_id} reads {text.strip()!r} again")
    with story.step("show the tree of snapshots") as result:
        tree = _call(server, "GET", "/snapshots/chapter-one/tree")
        result += [f"{one['names'][0]} <- {one['parentID'] or 'the image'}" for one in tree]
    with story.step("delete children and snapshots") as result:
        with ThreadPoolExecutor(4) as pool:
            expect(all(pool.map(lambda one: one.kill(), children)), "a child was gone before its end")
        for name in ("another-two", "chapter-one"):
            expect(sandbox.delete_snapshot(name, **address), f"the snapshot {name} was gone before its end")
        result.append(f"{len(children)} children, 2 snapshots")


def _fork(story: Story, sandbox: "Sandbox") -> list["Sandbox"]:
    with story.step(f"fork it into {CHILDREN}") as result:
        made = sandbox.fork(count=CHILDREN, timeout=600, request_timeout=300)
        failed = [str(one) for one in made if isinstance(one, Exception)]
        expect(not failed, f"{len(failed)} children did not start: {failed[:1]}")
        children = [one for one in made if not isinstance(one, Exception)]
        result.append(" ".join(child.sandbox_id for child in children[:3]) + " ...")
    return children


def _work(children: Sequence["Sandbox"]) -> list[str]:
    """Return what the first children say; all of them must say something of their own."""

    def work(number: int) -> str:
        child = children[number]
        child.files.write("chapter", f"two, as told by {number}\n")
        program = f"import math, os; print(os.urandom(6).hex(), math.factorial({number}))"
        return str(child.commands.run(f"python3 -c '{program}'").stdout.strip())

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(work, range(len(children))))
    expect(len({one.split()[0] for one in said}) == len(said), "two children drew the same random numbers")
    return [f"random {said[0].split()[0]}, {said[1].split()[0]}, ...: all {len(said)} differ"]


def _count(sandbox: "Sandbox") -> int:
    deadline = time.monotonic() + 60
    while True:
        text = sandbox.commands.run("cat /tmp/count 2>/dev/null || true").stdout.strip()
        if text.isdigit():
            return int(text)
        expect(time.monotonic() < deadline, "the program does not count")
        time.sleep(0.1)  # noqa: TID251 - a plain synchronous program without an event loop


def _call(server: ScratchServer, method: str, path: str, body: object = None) -> Any:
    """Ask for what is ours and no SDK knows."""
    headers = {"X-API-KEY": server.key, "Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, content, headers, method=method)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - our own server
        return json.load(answer)
