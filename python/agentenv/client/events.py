"""The event stream of a process: Connect envelopes in, process events out. A guest wrote it, so nothing is believed."""

from collections.abc import AsyncIterator

import aiohttp

from agentenv.client.answers import connect_error
from agentenv.client.base import Channel, Ended, Output
from agentenv.client.document import Document, parse_object
from agentenv.client.envelope import Envelope, EnvelopeDecoder, EnvelopeKind
from agentenv.client.errors import AnswerInvalid, StreamLost
from agentenv.client.transport import read_chunks

_SIGNAL_PREFIX = "signal: "


class EventStream:
    """One answered `Start` or `Connect` call."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._documents = _documents(response)

    async def read_start(self) -> int:
        """Return the number of the process, which the first message must hold."""
        async for message in self._documents:
            event = message.part("event")
            start = None if event is None else event.part("start")
            if start is not None:
                return start.integer("pid")
            if event is None or event.part("keepalive") is None:
                raise AnswerInvalid("the stream of a process does not begin with its start")
        raise StreamLost("the connection broke before the command had started; it may or may not run")

    async def read_events(self) -> AsyncIterator[Output | Ended]:
        """Yield what the process does until its end. Raises `StreamLost` when the stream stops before."""
        async for message in self._documents:
            event = message.part("event")
            if event is None:
                continue
            for happened in _parse_event(event):
                yield happened
                if isinstance(happened, Ended):
                    return
        raise StreamLost("the connection broke while the command was running")


async def _documents(response: aiohttp.ClientResponse) -> AsyncIterator[Document]:
    decoder = EnvelopeDecoder()
    async for chunk in read_chunks(response):
        for envelope in decoder.feed(chunk):
            if envelope.kind is EnvelopeKind.END:
                _check_end(envelope)
                return
            yield parse_object(envelope.payload, "process event")


def _check_end(envelope: Envelope) -> None:
    error = parse_object(envelope.payload or b"{}", "end of the stream").part("error")
    if error is not None:
        raise connect_error(error.text("code"), error.optional_text("message"))


def _parse_event(event: Document) -> list[Output | Ended]:
    happened: list[Output | Ended] = []
    output = event.part("data")
    if output is not None:
        pieces = ((channel, output.content(channel)) for channel in Channel)
        happened += [Output(channel, content) for channel, content in pieces if content]
    end = event.part("end")
    if end is not None:
        happened.append(_parse_end(end))
    return happened


def _parse_end(end: Document) -> Ended:
    # Zero is proto3's default and may be left out, and so may an exit code of 0 be.
    exit_code = end.integer("exitCode", 0)
    status = end.optional_text("status") or ""
    if not status.startswith(_SIGNAL_PREFIX):
        return Ended(exit_code)
    return Ended(exit_code, status.removeprefix(_SIGNAL_PREFIX).removesuffix(" (core dumped)"))
