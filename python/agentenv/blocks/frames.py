"""The frames of the control protocol: a length and a JSON object. Pure; what comes in is checked before it is believed.

docs/internals/blockd.md describes the protocol.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from agentenv.base.errors import AgentEnvError
from agentenv.blocks.errors import BlocksRefused, DaemonBroken, from_daemon

VERSION = 1
LIMIT_BYTES = 1024 * 1024
_LENGTH = struct.Struct(">I")
LENGTH_BYTES = _LENGTH.size
_MESSAGE_CHARACTERS = 1000
_CODE_CHARACTERS = 64

JsonObject = dict[str, object]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the daemon said to the request `number`: a result, or an error."""

    number: int
    result: JsonObject
    error: AgentEnvError | None = None


def encode_request(number: int, verb: str, arguments: Mapping[str, object]) -> bytes:
    """Return the frame of a request. Raises `BlocksRefused` for one that is too long."""
    request = {"version": VERSION, "id": number, "verb": verb, "arguments": arguments}
    body = json.dumps(request, separators=(",", ":")).encode()
    if len(body) > LIMIT_BYTES:
        raise BlocksRefused(f"{verb} has {len(body)} bytes of arguments; {LIMIT_BYTES} is the most")
    return _LENGTH.pack(len(body)) + body


def decode_length(head: bytes) -> int:
    """Return how many bytes follow `head`. Raises `DaemonBroken` when no honest daemon would send that many."""
    (length,) = _LENGTH.unpack(head)
    if not 0 < length <= LIMIT_BYTES:
        raise DaemonBroken(f"the block daemon announced an answer of {length} bytes")
    return int(length)


def decode_answer(body: bytes) -> Answer:
    """Return what a frame says. Raises `DaemonBroken` when it is not an answer."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DaemonBroken("the block daemon sent something that is not JSON") from error
    number = answer.get("id") if isinstance(answer, dict) else None
    if not isinstance(number, int) or isinstance(number, bool):
        raise DaemonBroken("the block daemon sent something that answers no request")
    match answer:
        case {"result": dict(result)}:
            return Answer(number, result)
        case {"error": {"kind": str(kind), "code": str(code), "message": str(message)}}:
            return Answer(number, {}, from_daemon(kind, code[:_CODE_CHARACTERS], message[:_MESSAGE_CHARACTERS]))
        case _:
            raise DaemonBroken("the block daemon sent an answer with neither result nor error")
