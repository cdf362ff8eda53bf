"""`LayerFiles`: typed errors, and cancellation that waits for the thread."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from agentenv.base.aio import BlockingPool
from agentenv.base.errors import AgentEnvError
from agentenv.blocks import errors
from agentenv.blocks.layers import LayerFiles, NewLayer
from support.layers import VECTORS, write_image


@pytest.fixture
async def files() -> AsyncIterator[LayerFiles]:
    pool = BlockingPool("layers", 2)
    yield LayerFiles(pool)
    pool.close()


async def test_an_image_goes_through_every_form_and_comes_back(files: LayerFiles, tmp_path: Path) -> None:
    content = write_image(tmp_path / "raw", blocks=300)
    plain = await files.commit(tmp_path / "raw", tmp_path / "plain")
    packed = await files.flatten([tmp_path / "plain"], tmp_path / "packed", new=NewLayer(compression="lz4"))
    merged = await files.merge([tmp_path / "packed"], tmp_path / "merged")
    assert (merged.digest, merged.entries) == (plain.digest, plain.entries)
    assert (await files.verify(tmp_path / "packed")).digest == packed.digest
    assert await files.digest(tmp_path / "plain") == plain.digest
    assert (await files.inspect(tmp_path / "packed")).layer_bytes == plain.layer_bytes
    assert await files.cat([tmp_path / "packed"], tmp_path / "again") == len(content)
    assert (tmp_path / "again").read_bytes() == content


async def test_a_pair_is_sealed(files: LayerFiles, tmp_path: Path) -> None:
    for part in ("data", "index"):
        (tmp_path / part).write_bytes((VECTORS / f"rw_{part}.bin").read_bytes())
    await files.seal(tmp_path, data="data", index="index", output="sealed")
    assert (await files.inspect(tmp_path / "sealed")).data_bytes > 0


_Call = Callable[[LayerFiles, Path], Awaitable[object]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda files, place: files.inspect(place / "text"), errors.DiskDamaged),
        (lambda files, place: files.inspect(place / "missing"), errors.LayerMissing),
        (lambda files, place: files.commit(place / "text", place / "new"), errors.LayerRefused),
        (lambda files, place: files.cat([VECTORS / "two_segments.bin"], place / "text"), errors.LayerExists),
        (lambda files, place: files.commit(place / "raw", place / "text" / "new"), errors.LayerFileFailed),
        (
            lambda files, place: files.commit(place / "raw", place / "new", new=NewLayer(tag=bytes(257))),
            errors.LayerTooLarge,
        ),
    ],
    ids=["damaged", "missing", "refused", "exists", "failed", "too large"],
)
async def test_failures_have_kinds(files: LayerFiles, tmp_path: Path, call: _Call, error: type[AgentEnvError]) -> None:
    (tmp_path / "text").write_text("no layer at all" * 1000)
    write_image(tmp_path / "raw", blocks=4)
    with pytest.raises(error) as caught:
        await call(files, tmp_path)
    assert str(tmp_path) in caught.value.message
    assert not (tmp_path / "new").exists()


async def test_a_cancelled_caller_goes_on_when_the_thread_has_ended(tmp_path: Path) -> None:
    pool = BlockingPool("layers", 1)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(8 << 30)
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(
        LayerFiles(pool).digest(tmp_path / "huge", progress=lambda *_: loop.call_soon_threadsafe(begun.set))
    )
    await begun.wait()
    work.cancel()
    async with asyncio.timeout(5):  # the whole digest takes longer than a patient machine
        with pytest.raises(asyncio.CancelledError):
            await work
        await pool.run(lambda: None)
    pool.close()
