"""An image with one static program and nothing else: no shell, no passwd, no hosts, no directories."""

import asyncio
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2b import InvalidArgumentException, Sandbox
from pydantic import SecretStr

from agentenv.base.ids import SandboxId
from agentenv.client.api import ApiClient
from agentenv.client.base import Channel, Command, Ended, Output
from agentenv.client.daemon import Daemon
from agentenv.client.settings import ClientSettings
from agentenv.client.transport import Transport
from agentenv.images import disk, manifest
from agentenv.images.manifest import ImageManifest
from agentenv.main.demo.scratch import ScratchServer
from support.server import access_to, prepared_daemon, prepared_home, real_home, real_server, settings_for_tests

TEMPLATE = "scratch0000000000000"
SETTINGS = settings_for_tests(prefix="aenvmini", network="10.207.0.0/24", uid_base=360_000)


@pytest.fixture(scope="module")
def server(prepared: None) -> Iterator[ScratchServer]:
    """A server that also knows an image with nothing in it but /app, which is our own static binary."""
    with real_home("test-minimal") as home:
        images = home.path / "images"
        images.unlink()
        images.mkdir()
        for image in (prepared_home() / "images").iterdir():
            (images / image.name).symlink_to(image)
        asyncio.run(build_image(images / TEMPLATE))
        with real_server(home, SETTINGS) as started:
            yield started


async def build_image(directory: Path) -> None:
    root = directory / "root"
    root.mkdir(parents=True)
    shutil.copy(prepared_daemon(), root / "app")
    (root / "app").chmod(0o755)
    image = directory / "disk.ext4"
    await disk.make_ext4(root, image, size_mib=64, identity=uuid.uuid4())
    shutil.rmtree(root)
    manifest.write(
        directory,
        ImageManifest(
            template_id=TEMPLATE,
            names=("scratch",),
            disk_file=image.name,
            disk_size_bytes=image.stat().st_size,
            vcpus=1,
            memory_mib=128,
            environment={},
            default_user="root",
            default_workdir=None,
            built_from="a directory with one file",
            inputs="test",
        ),
    )


@pytest.fixture(scope="module")
def scratch(server: ScratchServer) -> Iterator[Sandbox]:
    sandbox = Sandbox.create("scratch", timeout=600, request_timeout=120, **access_to(server))
    yield sandbox
    sandbox.kill()


def test_a_static_program_runs_where_nothing_else_is(server: ScratchServer, scratch: Sandbox) -> None:
    stdout, stderr, end = asyncio.run(run_program(server, scratch.sandbox_id, "/app"))
    assert (stdout, end) == (b"", Ended(exit_code=2))
    assert b"usage: aenv-guest daemon" in stderr


def test_files_are_written_and_read_where_nothing_else_is(scratch: Sandbox) -> None:
    scratch.files.write("/data/file", "x")
    assert scratch.files.read("/data/file") == "x"
    assert "nameserver" in scratch.files.read("/etc/resolv.conf")
    assert "localhost" in scratch.files.read("/etc/hosts")
    assert {"app", "dev", "proc", "sys", "run", "tmp"} <= {entry.name for entry in scratch.files.list("/")}


def test_a_missing_shell_is_an_error_that_names_it(scratch: Sandbox) -> None:
    with pytest.raises(InvalidArgumentException, match="/bin/bash"):
        scratch.commands.run("true")


async def run_program(server: ScratchServer, sandbox_id: str, program: str) -> tuple[bytes, bytes, Ended]:
    """Run a program without a shell, as `aenv exec` does, and return both outputs and the end."""
    settings = ClientSettings(api_url=server.url, api_key=SecretStr(server.key))
    outputs = {Channel.STDOUT: b"", Channel.STDERR: b"", Channel.TERMINAL: b""}
    async with Transport(settings) as transport:
        known = await ApiClient(transport, settings).connect(SandboxId(sandbox_id))
        async with Daemon(transport, settings, known).open_start(Command(program)) as events:
            await events.read_start()
            async for event in events.read_events():
                if isinstance(event, Output):
                    outputs[event.channel] += event.content
                elif isinstance(event, Ended):
                    return outputs[Channel.STDOUT], outputs[Channel.STDERR], event
    raise AssertionError("the stream ended without an end event")
