"""What a monitor says to its standard error is kept by its end, at a pace of ours."""

import asyncio
import contextlib
import os

from agentenv.vmm.qemu.error_pipe import ErrorPipe

PIPE_BYTES = 65536


async def test_the_end_of_what_was_written_is_kept() -> None:
    pipe = ErrorPipe.open_new()
    with pipe.writing_end() as monitor:
        os.write(monitor, b"first\n" + b"x" * 20_000 + b"\nlast words\x1b[31m\n")
    text = pipe.text()
    pipe.close()
    pipe.close()

    assert text.endswith("last words\\x1b[31m\n")
    assert len(text) < 10_000
    assert pipe.text() == text


async def test_a_flood_fills_the_pipe_instead_of_our_time() -> None:
    pipe = ErrorPipe.open_new()
    written = 0
    with pipe.writing_end() as monitor:
        for _ in range(1000):
            with contextlib.suppress(BlockingIOError):
                written += os.write(monitor, b"x" * 4096)
            await asyncio.sleep(0)
        text = pipe.text()
    pipe.close()

    assert written < 2 * PIPE_BYTES
    assert text.endswith("x")


async def test_a_writer_that_goes_away_ends_the_reading() -> None:
    pipe = ErrorPipe.open_new()
    with pipe.writing_end() as monitor:
        os.write(monitor, b"bye\n")
    while not pipe.text().endswith("bye\n"):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.06)

    assert pipe.text() == "bye\n"
    pipe.close()
