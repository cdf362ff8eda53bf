"""The daemon inside a sandbox, reached through the server's data plane: calls and streams of `process.Process`."""

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Mapping

from agentenv.client.answers import INTERNAL, sandbox_error
from agentenv.client.base import Command, Sandbox, Signal, TerminalSize
from agentenv.client.envelope import encode
from agentenv.client.errors import AnswerInvalid, InputClosed, RequestRefused, ServerFailed
from agentenv.client.events import EventStream
from agentenv.client.settings import ClientSettings
from agentenv.client.transport import Transport, deadline, read_answer

DAEMON_PORT = 49983
_SERVICE = "/process.Process/"
_STREAM_TYPE = "application/connect+json"


class Daemon:
    """Speaks to the daemon of one sandbox. Nothing here is repeated by itself: a command must not run twice."""

    def __init__(self, transport: Transport, settings: ClientSettings, sandbox: Sandbox) -> None:
        self._transport = transport
        self._settings = settings
        self.sandbox_id = sandbox.sandbox_id
        self._base_url = settings.url_into(sandbox.sandbox_id, DAEMON_PORT)
        self._headers = {
            "E2b-Sandbox-Id": sandbox.sandbox_id,
            "E2b-Sandbox-Port": str(DAEMON_PORT),
            "Connect-Protocol-Version": "1",
        }
        if sandbox.access_token is not None:
            self._headers["X-Access-Token"] = sandbox.access_token

    def open_start(self, command: Command) -> contextlib.AbstractAsyncContextManager[EventStream]:
        """Start a process and give its events. Leaving the context does not end the process."""
        headers = {}
        if command.user is not None:
            if ":" in command.user:
                raise RequestRefused(f"no user can be called {command.user!r}: a name holds no colon")
            credentials = base64.b64encode(f"{command.user}:".encode()).decode()
            headers["Authorization"] = f"Basic {credentials}"
        if command.timeout_seconds is not None:
            headers["Connect-Timeout-Ms"] = str(max(1, round(command.timeout_seconds * 1000)))
        return self._open_stream("Start", _start_request(command), headers)

    def open_connect(self, pid: int) -> contextlib.AbstractAsyncContextManager[EventStream]:
        """Give the events of a process that runs already, from now on."""
        return self._open_stream("Connect", {"process": {"pid": pid}}, {})

    async def send_input(self, pid: int, content: bytes, *, to_terminal: bool = False) -> None:
        """Write to a process and return when the daemon took it, which waits as long as the process does not read.

        Raises `InputClosed` when the process has closed its input, `ProcessNotFound` when it has ended.
        """
        fields = {"input": {"pty" if to_terminal else "stdin": base64.b64encode(content).decode()}}
        try:
            await self._call("SendInput", pid, fields, is_bounded=False)
        except ServerFailed as error:
            if error.code != INTERNAL:
                raise
            raise InputClosed(f"process {pid} takes no input: {error.message}") from error

    async def close_input(self, pid: int) -> None:
        """Let a process read the end of its input."""
        await self._call("CloseStdin", pid, {})

    async def send_signal(self, pid: int, signal: Signal) -> None:
        """Send a signal to that process alone."""
        await self._call("SendSignal", pid, {"signal": signal.value})

    async def resize(self, pid: int, size: TerminalSize) -> None:
        """Tell a process that its terminal has another size now."""
        await self._call("Update", pid, {"pty": {"size": _size(size)}})

    async def _call(self, method: str, pid: int, fields: Mapping[str, object], *, is_bounded: bool = True) -> None:
        headers = {**self._headers, "Content-Type": "application/json"}
        body = json.dumps({"process": {"pid": pid}, **fields}).encode()
        seconds = self._settings.request_timeout_seconds if is_bounded else None
        async with deadline(seconds, f"reach process {pid} in sandbox {self.sandbox_id}"):
            answer = await self._transport.request(
                "POST", self._base_url + _SERVICE + method, headers=headers, body=body
            )
        if answer.status != 200:
            raise sandbox_error(answer, self.sandbox_id)

    @contextlib.asynccontextmanager
    async def _open_stream(
        self, method: str, message: Mapping[str, object], headers: Mapping[str, str]
    ) -> AsyncIterator[EventStream]:
        sent_headers = {
            **self._headers,
            **headers,
            "Content-Type": _STREAM_TYPE,
            "Keepalive-Ping-Interval": str(self._settings.keepalive_seconds),
        }
        body = encode(json.dumps(message).encode())
        async with self._transport.stream(
            self._base_url + _SERVICE + method, headers=sent_headers, body=body
        ) as response:
            if response.status != 200:
                raise sandbox_error(await read_answer(response), self.sandbox_id)
            if response.headers.get("Content-Type") != _STREAM_TYPE:
                raise AnswerInvalid(f"{self._base_url} does not speak the protocol of a sandbox")
            yield EventStream(response)


def _start_request(command: Command) -> dict[str, object]:
    process: dict[str, object] = {
        "cmd": command.program,
        "args": list(command.arguments),
        "envs": command.environment,
    }
    if command.cwd is not None:
        process["cwd"] = command.cwd
    if command.terminal is not None:
        return {"process": process, "pty": {"size": _size(command.terminal)}}
    return {"process": process, "stdin": command.stdin}


def _size(size: TerminalSize) -> dict[str, int]:
    return {"cols": size.columns, "rows": size.rows}
