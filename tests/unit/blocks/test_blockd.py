"""The client of the block daemon: answers, errors, and connections that end."""

import asyncio
import struct
from pathlib import Path

import pytest

from agentenv.blocks.base import FileLayer, RegistryLayer, Stack
from agentenv.blocks.blockd import BlockDaemonClient, Writable
from agentenv.blocks.errors import BlocksConflict, DaemonBroken, DaemonGone, DaemonSilent, DiskAbsent
from agentenv.blocks.settings import BlocksSettings
from support.fake_blockd import Bench, refuse

DIGEST = "sha256:" + "ab" * 32
BASE = Stack((FileLayer(Path("/layers/base"), DIGEST), RegistryLayer("https://host/v2/x", DIGEST, 7)), 4096)


async def test_layers_are_sent_in_the_words_of_the_protocol(bench: Bench) -> None:
    opened = await bench.client.open_disk("disk-a", BASE, Writable(Path("/w/a"), None), owner=12)

    assert opened.path == bench.places.mount / "disk-a"
    assert bench.daemon.calls == [
        (
            "open",
            {
                "name": "disk-a",
                "layers": [
                    {"kind": "file", "path": "/layers/base"},
                    {
                        "kind": "registry",
                        "repository": "https://host/v2/x",
                        "digest": DIGEST,
                        "size_bytes": 7,
                        "credentials_path": None,
                    },
                ],
                "writable": {"directory": "/w/a", "size_bytes": None, "overwrite": "in_place"},
                "use": "disk",
                "owner": 12,
            },
        )
    ]


async def test_error_of_the_daemon_is_raised_to_its_own_caller_only(bench: Bench) -> None:
    bench.daemon.answers["close"] = lambda _: refuse("conflict", "image_in_use", "in use")

    async with asyncio.TaskGroup() as group:
        hello = group.create_task(bench.client.hello())
        absent = group.create_task(_error_of(bench.client.stat("nothing")))
        in_use = group.create_task(_error_of(bench.client.close("x", discard=False, force=False)))

    assert hello.result().program == "9.9"
    assert isinstance(absent.result(), DiskAbsent)
    assert isinstance(in_use.result(), BlocksConflict)


async def _error_of(work: object) -> Exception:
    try:
        await work  # type: ignore[misc]
    except Exception as error:
        return error
    raise AssertionError("no error was raised")


async def test_call_whose_connection_ends_is_made_again(bench: Bench) -> None:
    bench.daemon.held = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        call = group.create_task(bench.client.open_disk("d", BASE, Writable(Path("/w"), None), owner=1))
        while not bench.daemon.calls:
            await asyncio.sleep(0)
        bench.daemon.cut()
        bench.daemon.held.set()

    assert call.result().size_bytes == 4096
    assert bench.daemon.verbs() == ["open", "open"]


async def test_daemon_that_says_nothing_is_given_up_in_time(bench: Bench) -> None:
    bench.daemon.held = asyncio.Event()
    impatient = BlockDaemonClient(
        bench.places.control,
        BlocksSettings(request_timeout_seconds=0.05),
        bench.client._supervisor,
        bench.client._clock,
    )
    with pytest.raises(DaemonSilent, match=r"hello within 0\.05 s"):
        await impatient.hello()
    bench.daemon.held.set()
    await impatient.disconnect()


async def test_absent_daemon_is_known_at_once(bench: Bench) -> None:
    bench.places.control.unlink()
    with pytest.raises(DaemonGone, match="does not listen"):
        await bench.client.hello()


async def test_other_version_of_the_protocol_is_refused(bench: Bench) -> None:
    greeting = {"version": 2, "program": "x", "pid": 1, "mount": "/m"}
    bench.daemon.answers["hello"] = lambda _: {"result": greeting}
    with pytest.raises(DaemonBroken, match="speaks version 2"):
        await bench.client.hello()


async def test_answer_of_another_shape_is_the_daemons_bug(bench: Bench) -> None:
    bench.daemon.answers["hello"] = lambda _: {"result": {"version": "one"}}
    with pytest.raises(DaemonBroken, match="answered hello with something else"):
        await bench.client.hello()


@pytest.mark.parametrize("raw", [struct.pack(">I", 2**31), struct.pack(">I", 3) + b"\xff\xff\xff"])
async def test_nonsense_ends_the_connection_and_not_the_client(
    bench: Bench, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.daemon.raw = raw
    call = asyncio.ensure_future(bench.client.hello())
    while len(bench.daemon.calls) < 2:
        await asyncio.sleep(0.001)
    bench.daemon.raw = None
    assert (await call).program == "9.9"


async def test_a_list_of_many_pages_is_read_to_its_end(bench: Bench) -> None:
    bench.daemon.page_limit = 2
    names = [f"memory-{number}" for number in range(5)]
    for name in names:
        await bench.client.open_memory(name, BASE)

    assert [image.name for image in await bench.client.images()] == names


async def test_a_list_that_goes_in_circles_is_refused(bench: Bench) -> None:
    bench.daemon.answers["list"] = lambda _: {"result": {"images": [{"name": "a"}], "next": "a"}}

    with pytest.raises(DaemonBroken, match="in circles"):
        await bench.client.images()
