import re
import stat
from pathlib import Path

from support.aenv_terminal import in_terminal
from support.fake_server import API_KEY, FakeServer

SANDBOX = "iabcdefghijklmnopqrst"


async def test_list_is_a_table(server: FakeServer, environment: dict[str, str]) -> None:
    server.sandboxes[SANDBOX].update(alias="[red]x[/red]", endAt="2126-11-01T10:00:00Z")
    server.add_sandbox("ipaused", state="paused")

    async with in_terminal("list", environment=environment) as terminal:
        assert await terminal.end() == 0

    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.shown.decode()).splitlines()
    assert lines[0].split() == ["ID", "TEMPLATE", "STATE", "STARTED", "EXPIRES", "IN", "CPU", "MEMORY"]
    (running,) = [line for line in lines if SANDBOX in line]
    (paused,) = [line for line in lines if "ipaused" in line]
    assert "[red]x[/red]" in running
    assert "512 MiB" in running
    assert " - " in paused


async def test_an_empty_list_says_what_to_do(server: FakeServer, environment: dict[str, str]) -> None:
    server.sandboxes.clear()

    async with in_terminal("list", environment=environment) as terminal:
        assert await terminal.end() == 0

    assert b"No sandboxes. Start one:  aenv start" in terminal.shown


async def test_start_says_how_to_go_on(environment: dict[str, str]) -> None:
    async with in_terminal("start", "--timeout", "5m", environment=environment) as terminal:
        assert await terminal.end() == 0

    lines = terminal.shown.decode().splitlines()
    assert lines[1] == "Started from base, it lives for 5 min 0 s."
    assert lines[2] == f"Use it:  aenv exec {lines[0]} -- uname -a"


async def test_delete_all_asks_and_takes_no_for_an_answer(server: FakeServer, environment: dict[str, str]) -> None:
    async with in_terminal("delete", "--all", environment=environment) as terminal:
        await terminal.until(b"Delete 1 sandboxes of")
        terminal.press(b"n\n")

        assert await terminal.end() == 1

    assert server.sandboxes.keys() == {SANDBOX}


async def test_auth_asks_and_does_not_show_the_key(server: FakeServer, environment: dict[str, str]) -> None:
    del environment["AENV_API_KEY"]
    async with in_terminal("auth", environment=environment) as terminal:
        await terminal.until(f"Server [{server.url}]: ".encode())
        terminal.press(b"\n")
        await terminal.until(b"API key: ")
        terminal.press(f"{API_KEY}\n".encode())

        assert await terminal.end() == 0

    path = Path(environment["HOME"]) / ".config/agentenv/config.toml"
    assert API_KEY in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert API_KEY.encode() not in terminal.shown
