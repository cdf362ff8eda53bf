"""POST /sandboxes/{id}/connect in both generations, and /resume: make sure that a sandbox runs, hand out its token."""

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.errors import RequestInvalid
from agentenv.api.models import Connect, Resume
from agentenv.api.views import show_created


async def connect_sandbox(call: Call) -> web.Response:
    """Connect with the second generation's default timeout."""
    body = await call.body(Connect, may_be_absent=True)
    return await _connect(call, body, call.settings.default_timeout_seconds)


async def connect_sandbox_v1(call: Call) -> web.Response:
    """Connect; the first generation has no default timeout."""
    body = await call.body(Connect)
    if body.timeout is None:
        raise RequestInvalid("timeout: Field required")
    return await _connect(call, body, body.timeout)


async def _connect(call: Call, body: Connect, default_timeout_seconds: int) -> web.Response:
    timeout_seconds = default_timeout_seconds if body.timeout is None else body.timeout
    connected = await call.orchestrator.connect(call.sandbox_id, timeout_seconds, with_memory=body.memory is not False)
    return json_answer(show_created(connected.sandbox, call.domain), status=201 if connected.resumed else 200)


async def resume_sandbox(call: Call) -> web.Response:
    """Resume a paused sandbox; one that runs is a conflict here."""
    body = await call.body(Resume, may_be_absent=True)
    connected = await call.orchestrator.connect(
        call.sandbox_id,
        call.settings.default_timeout_v1_seconds if body.timeout is None else body.timeout,
        with_memory=body.memory is not False,
        auto_pause=body.autoPause,
        must_be_paused=True,
    )
    return json_answer(show_created(connected.sandbox, call.domain), status=201)
