"""The demo: what it does, in order."""

import asyncio
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from rich.console import Console

from agentenv.base.clock import SystemClock
from agentenv.main.demo.branches import CHILDREN, tell_of_branches
from agentenv.main.demo.scratch import ScratchServer, scratch_home, scratch_server
from agentenv.main.demo.story import DemoFailed, Story, expect
from agentenv.main.doctor.leaks import find_leaks
from agentenv.main.home import Home
from agentenv.main.settings import Settings
from agentenv.main.setup.display import open_display
from agentenv.main.setup.service import run_setup
from agentenv.main.setup.step import Mode

if TYPE_CHECKING:
    from e2b import Sandbox

# The demo must not meet a real server of this host: names, addresses and user ids of its own.
_NETWORK = {
    "prefix": "aenvdemo",
    "network": IPv4Network("10.204.0.0/24"),
    "max_slots": 2 * CHILDREN,
    "ready_slots_low": 1,
    "ready_slots_high": 4,
    "uid_base": 330_000,
}
_WEB_PORT = 3000
_PROGRAM = "import math, sys; print(sys.version.split()[0], math.factorial(20))"


def run_demo(settings: Settings, *, skip_setup: bool) -> None:
    """Tell the whole story. Raises `DemoFailed` where something is not as it must be."""
    sdk = _import_sdk()
    settings = demo_settings(settings)
    story = Story(Console())
    if not skip_setup:
        with story.step("set this machine up"):
            _set_up(settings, story.console)
    with scratch_home(settings.home, "demo") as home:
        with ExitStack() as stack:
            with story.step("start a server") as result:
                server = stack.enter_context(scratch_server(home, settings))
                result.append(server.url)
            _use(story, server, sdk)
            with story.step("stop the server"):
                stack.close()
        with story.step("look for anything left behind") as result:
            _check_leaks(settings, home, result)
    story.console.print(story.table())


def demo_settings(settings: Settings) -> Settings:
    """Return the settings of the demo's server, made from those of this machine."""
    return settings.model_copy(update={"network": settings.network.model_copy(update=_NETWORK)})


def _set_up(settings: Settings, console: Console) -> None:
    with open_display(console, is_silent=False) as display:
        reports = asyncio.run(
            run_setup(settings, Mode(check=False, refresh=False), display, SystemClock(), offline=False)
        )
    if bad := [report.step for report in reports if not report.is_good]:
        raise DemoFailed(f"this machine could not be set up: {', '.join(bad)}; `aenv setup` says more")


def _use(story: Story, server: ScratchServer, sdk: type["Sandbox"]) -> None:
    """Do with a sandbox what a user would do, through the official SDK."""
    address: dict[str, str] = {"api_url": server.url, "sandbox_url": server.url, "api_key": server.key}
    with story.step("create a sandbox") as result:
        sandbox = sdk.create(timeout=600, request_timeout=120, **address)  # type: ignore[arg-type]
        result.append(sandbox.sandbox_id)
    with story.step("run uname -a") as result:
        result.append(sandbox.commands.run("uname -a").stdout.strip())
    with story.step("run a Python program") as result:
        result.append(sandbox.commands.run(f'python3 -c "{_PROGRAM}"').stdout.strip())
    with story.step("write a file and read it back") as result:
        sandbox.files.write("notes/hello.txt", "written from outside\n")
        text = sandbox.files.read("notes/hello.txt")
        expect(text == "written from outside\n", f"the file came back as {text!r}")
        result.append(sandbox.commands.run("ls -l notes/hello.txt").stdout.strip())
    with story.step("use a terminal (PTY)") as result:
        result.append(_use_terminal(sandbox))
    with story.step("reach a web server inside the sandbox") as result:
        result.append(_reach_web_server(sandbox, server))
    tell_of_branches(story, sandbox, server, address)
    with story.step("kill the sandbox") as result:
        expect(sandbox.kill(), "the sandbox was not there to be killed")
        expect(not sandbox.is_running(), "the sandbox still runs after its kill")
        result.append("is_running() is False")


def _use_terminal(sandbox: "Sandbox") -> str:
    from e2b import PtySize  # noqa: PLC0415 - only the demo needs the SDK

    output = bytearray()
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80), timeout=60)
    sandbox.pty.send_stdin(terminal.pid, b"stty size; echo $((100+23))\nexit\n")
    terminal.wait(on_pty=output.extend)
    text = output.decode(errors="replace")
    expect("24 80" in text and "123" in text, f"the terminal showed {text!r}")
    return "24 rows, 80 columns, 100+23=123"


def _reach_web_server(sandbox: "Sandbox", server: ScratchServer) -> str:
    sandbox.files.write("site/index.html", "<h1>hello from the sandbox</h1>")
    sandbox.commands.run(f"python3 -m http.server {_WEB_PORT} --directory site", background=True)
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(_WEB_PORT)}
    deadline = time.monotonic() + 60
    while True:
        request = urllib.request.Request(f"{server.url}/index.html", headers=headers)  # noqa: S310 - our own server
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            # 502 is the contract's answer while nothing listens on the port yet.
            expect(error.code == 502 and time.monotonic() < deadline, f"the web server answered {error.code}")
            time.sleep(0.1)  # noqa: TID251 - a plain synchronous program without an event loop
            continue
        expect("hello from the sandbox" in text, f"the web server sent {text!r}")
        return f"port {_WEB_PORT}: {text}"


def _check_leaks(settings: Settings, home: Home, result: list[str]) -> None:
    leaks = asyncio.run(find_leaks(home.path, settings.network))
    expect(not leaks, f"left behind: {', '.join(leaks)}")
    result.append("no process, namespace, link, mount, nft table or disk")


def _import_sdk() -> type["Sandbox"]:
    try:
        from e2b import Sandbox  # noqa: PLC0415 - only the demo needs the SDK
    except ImportError as error:
        raise DemoFailed("the demo drives the official SDK: install it by `pip install agentenv[demo]`") from error
    return Sandbox
