import json
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from agentenv.cli.group import client_group
from support import aenv
from support.aenv import Finished
from support.fake_server import API_KEY, TOKEN, FakeServer

SANDBOX = "iabcdefghijklmnopqrst"
Run = Callable[..., Awaitable[Finished]]


async def test_start_prints_the_id_alone_where_no_person_reads(run: Run, server: FakeServer) -> None:
    finished = await run("start", "--timeout", "15m", "--metadata", "a=b=c", "--env", "X=", "--no-internet")

    (request,) = server.seen("POST /v2/sandboxes")
    assert request.document == {
        "templateID": "base",
        "timeout": 900,
        "metadata": {"a": "b=c"},
        "envVars": {"X": ""},
        "allow_internet_access": False,
    }
    assert finished == Finished(0, f"{list(server.sandboxes)[-1]}\n".encode(), b"")


async def test_start_as_json_holds_no_token(run: Run) -> None:
    finished = await run("start", "--json")

    assert json.loads(finished.stdout).keys() == {"sandboxID", "templateID", "alias", "domain", "envdVersion"}
    assert TOKEN.encode() not in finished.stdout


async def test_start_of_an_unknown_template_is_one_sentence_and_exit_code_1(run: Run) -> None:
    finished = await run("start", "nonsense")

    message = b"aenv: cannot start a sandbox from nonsense: template 'nonsense' not found\n"
    assert finished == Finished(1, b"", message)


async def test_list_is_tab_separated_where_no_person_reads(run: Run, server: FakeServer) -> None:
    server.sandboxes[SANDBOX]["alias"] = "a\tb\x1b[2J"

    finished = await run("list")

    row = f"{SANDBOX}\ta b [2J\trunning\t2026-11-01T10:00:00Z\t2026-11-01T10:05:00Z\t2\t512\n"
    assert finished == Finished(0, row.encode(), b"")


async def test_list_as_json_uses_the_words_of_the_api(run: Run, server: FakeServer) -> None:
    server.sandboxes[SANDBOX].update(metadata={"run": "7"}, state="paused")

    finished = await run("list", "--json", "--state", "paused", "--metadata", "run=7")

    (sandbox,) = json.loads(finished.stdout)
    assert sandbox == {
        "sandboxID": SANDBOX,
        "templateID": "t-base",
        "alias": "base",
        "state": "paused",
        "startedAt": "2026-11-01T10:00:00Z",
        "endAt": "2026-11-01T10:05:00Z",
        "cpuCount": 2,
        "memoryMB": 512,
        "diskSizeMB": 2048,
        "envdVersion": "0.6.13",
        "metadata": {"run": "7"},
    }
    query = server.seen("GET /v2/sandboxes")[0].query
    assert query == {"limit": "100", "state": "paused", "metadata": "run=7"}


async def test_delete_prints_what_ended_and_names_what_was_not_there(run: Run, server: FakeServer) -> None:
    finished = await run("delete", SANDBOX, SANDBOX, "inothing")

    assert finished == Finished(1, f"{SANDBOX}\n".encode(), b"aenv: there is no sandbox inothing\n")
    assert server.sandboxes == {}


async def test_delete_all_needs_somebody_to_ask_or_yes(run: Run, server: FakeServer) -> None:
    refused = await run("delete", "--all")
    assert (refused.code, len(server.sandboxes)) == (2, 1)

    done = await run("delete", "--all", "--yes")
    assert (done.code, done.stdout, server.sandboxes) == (0, f"{SANDBOX}\n".encode(), {})


async def test_a_failure_of_one_deletion_does_not_stop_the_others(run: Run, server: FakeServer) -> None:
    server.add_sandbox("iother")
    server.answer(f"DELETE /sandboxes/{SANDBOX}", 409, {"code": 409, "message": "being paused"})

    finished = await run("delete", SANDBOX, "iother")

    assert (finished.code, finished.stdout) == (1, b"iother\n")
    assert b"being paused" in finished.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("delete",),
        ("delete", SANDBOX, "--all"),
        ("delete", "../admin"),
        ("start", "--timeout", "0"),
        ("start", "--timeout", "-5"),
        ("start", "--timeout", "soon"),
        ("start", "--metadata", "novalue"),
        ("start", "--env", "A=1", "--env", "A=2"),
        ("list", "--state", "dreaming"),
        ("exec", SANDBOX),
        ("exec", "a/b", "--", "true"),
        ("nonsense",),
        ("auth", "--url", "http://127.0.0.1:1"),
        ("auth", "--key", "k", "status"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what_is_wrong(words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(client_group, words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


async def test_a_wrong_key_is_said_so(run: Run, environment: dict[str, str]) -> None:
    environment["AENV_API_KEY"] = "wrong"

    assert await run("list") == Finished(1, b"", b"aenv: cannot list sandboxes: Invalid API key\n")


async def test_a_missing_key_says_what_to_do(run: Run, environment: dict[str, str]) -> None:
    del environment["AENV_API_KEY"]

    finished = await run("list")

    assert finished.code == 1
    assert b"run `aenv auth`, or set AENV_API_KEY" in finished.stderr


async def test_the_local_servers_own_key_is_found(run: Run, environment: dict[str, str], tmp_path: Path) -> None:
    del environment["AENV_API_KEY"]
    (tmp_path / "api-key").write_text(f"{API_KEY}\n")

    assert (await run("list")).code == 0


async def test_auth_checks_then_stores_then_forgets(run: Run, server: FakeServer, environment: dict[str, str]) -> None:
    del environment["AENV_API_KEY"], environment["AENV_API_URL"]
    path = Path(environment["HOME"]) / ".config/agentenv/config.toml"

    refused = await run("auth", "--url", server.url, "--key", "wrong")
    assert (refused.code, path.exists()) == (1, False)

    stored = await run("auth", "--url", server.url, "--key", API_KEY)
    assert (stored.code, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)
    assert API_KEY.encode() not in stored.stdout

    status = await run("auth", "status")
    assert status.code == 0
    assert b"from the configuration file" in status.stdout
    assert (await run("list")).code == 0

    assert (await run("auth", "logout")).code == 0
    assert (await run("list", "--url", server.url)).code == 1
    assert (await run("auth", "logout")).stdout == b"No key is stored.\n"


async def test_help_imports_neither_the_http_client_nor_rich() -> None:
    script = (
        "import sys\n"
        "from agentenv.cli.group import client_group\n"
        "client_group(['--help'], standalone_mode=False)\n"
        "print(sorted({'aiohttp', 'rich', 'pydantic', 'structlog', 'asyncio'} & set(sys.modules)))\n"
    )
    finished = await aenv.run_python(script)

    assert finished.stdout.splitlines()[-1] == b"[]"
