"""The asynchronous Python client under the names and habits of the synchronous one, so that one test serves both.

It only waits, and turns callbacks into iteration; what a call means is the client's own business.
"""

import asyncio
import inspect
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from typing import Any

from e2b import AsyncSandbox
from e2b.sandbox_async.commands.command import Commands
from e2b.sandbox_async.commands.pty import Pty
from e2b.sandbox_async.filesystem.filesystem import Filesystem

Output = tuple[str | None, str | None, bytes | None]
_ASYNCHRONOUS = "e2b.sandbox_async"


class EventLoop:
    """An event loop in a thread of its own, for as long as the session lasts."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def blocking_sandboxes(loop: EventLoop) -> Any:
    """Return what stands in for the class `Sandbox`."""
    return Blocking(loop, AsyncSandbox)


class Blocking:
    """An asynchronous object whose methods wait for their results."""

    def __init__(self, loop: EventLoop, target: Any) -> None:
        self._loop = loop
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return self._waiting(value) if callable(value) else wrap(self._loop, value)

    def __iter__(self) -> Iterator[Any]:
        source: AsyncIterator[Any] = aiter(self._target)
        while True:
            try:
                yield self._loop.run(_next(source))
            except StopAsyncIteration:
                return

    def _waiting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            return wrap(self._loop, self._loop.run(_call(function, positional, named)))

        return call


async def _next(source: AsyncIterator[Any]) -> Any:
    return await anext(source)


async def _call(function: Callable[..., Any], positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    # Called inside the loop, because some plain methods of the client want one around them.
    result = function(*positional, **named)
    return await result if inspect.isawaitable(result) else result


def wrap(loop: EventLoop, value: Any) -> Any:
    """Return `value`, dressed if it is asynchronous itself."""
    match value:
        case Commands():
            return BlockingCommands(loop, value)
        case Pty():
            return BlockingTerminals(loop, value)
        case Filesystem():
            return BlockingFiles(loop, value)
        case list():
            return [wrap(loop, item) for item in value]
    is_asynchronous = type(value).__module__.startswith(_ASYNCHRONOUS) or hasattr(value, "__aiter__")
    return Blocking(loop, value) if is_asynchronous else value


class BlockingHandle:
    """A running command, whose output is iterated and waited for as the synchronous client does it."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._outputs: queue.Queue[Output | None] = queue.Queue()
        self._handle: Any | None = None

    def opened(self, handle: Any) -> "BlockingHandle":
        self._handle = handle
        self._loop.run(self._watch_end(handle))
        return self

    async def _watch_end(self, handle: Any) -> None:
        handle._wait.add_done_callback(lambda _: self._outputs.put(None))

    def on_stdout(self, text: str) -> None:
        self._outputs.put((text, None, None))

    def on_stderr(self, text: str) -> None:
        self._outputs.put((None, text, None))

    def on_data(self, data: bytes) -> None:
        self._outputs.put((None, None, data))

    def __getattr__(self, name: str) -> Any:
        return getattr(Blocking(self._loop, self._handle), name)

    def __iter__(self) -> Iterator[Output]:
        while (output := self._outputs.get()) is not None:
            yield output
        self._outputs.put(None)

    def wait(
        self,
        on_pty: Callable[[bytes], Any] | None = None,
        on_stdout: Callable[[str], Any] | None = None,
        on_stderr: Callable[[str], Any] | None = None,
    ) -> Any:
        for stdout, stderr, data in self:
            if stdout is not None and on_stdout is not None:
                on_stdout(stdout)
            elif stderr is not None and on_stderr is not None:
                on_stderr(stderr)
            elif data is not None and on_pty is not None:
                on_pty(data)
        assert self._handle is not None
        return self._loop.run(self._handle.wait())


class BlockingCommands(Blocking):
    """`sandbox.commands`."""

    def run(self, command: str, *, background: bool = False, **options: Any) -> Any:
        if not background:
            return self._waiting(self._target.run)(command, **options)
        return self._start(self._target.run, command, background=True, **options)

    def connect(self, pid: int, **options: Any) -> BlockingHandle:
        return self._start(self._target.connect, pid, **options)

    def _start(self, function: Callable[..., Any], *positional: Any, **named: Any) -> BlockingHandle:
        handle = BlockingHandle(self._loop)
        outputs = {"on_stdout": handle.on_stdout, "on_stderr": handle.on_stderr}
        return handle.opened(self._loop.run(_call(function, positional, outputs | named)))

    def stream_input(self, pid: int, chunks: Iterable[str | bytes], **options: Any) -> None:
        self._loop.run(_stream_input(self._target, pid, chunks, options))


async def _stream_input(commands: Any, pid: int, chunks: Iterable[str | bytes], options: dict[str, Any]) -> None:
    async with commands.stream_input(pid, **options) as stream:
        for chunk in chunks:
            await stream.send(chunk)


class BlockingTerminals(Blocking):
    """`sandbox.pty`."""

    def create(self, size: Any, **options: Any) -> BlockingHandle:
        handle = BlockingHandle(self._loop)
        return handle.opened(self._loop.run(self._target.create(size, handle.on_data, **options)))

    def connect(self, pid: int, **options: Any) -> BlockingHandle:
        handle = BlockingHandle(self._loop)
        return handle.opened(self._loop.run(self._target.connect(pid, handle.on_data, **options)))


class BlockingFiles(Blocking):
    """`sandbox.files`, with the events of a watch kept until they are asked for."""

    def write(self, path: str, content: Any, **options: Any) -> Any:
        if isinstance(content, Generator):
            content = _each(content)
        return self._waiting(self._target.write)(path, content, **options)

    def watch_dir(self, path: str, **options: Any) -> "BlockingWatch":
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        return BlockingWatch(self._loop, self._loop.run(self._target.watch_dir(path, events.put, **options)), events)


async def _each(chunks: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


class BlockingWatch(Blocking):
    """A watched directory."""

    def __init__(self, loop: EventLoop, target: Any, events: "queue.SimpleQueue[Any]") -> None:
        super().__init__(loop, target)
        self._events = events

    def get_new_events(self) -> list[Any]:
        return [self._events.get() for _ in range(self._events.qsize())]
