"""POST /sandboxes and POST /v2/sandboxes: a new sandbox. Both generations are always secured."""

import re

from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.call import Call
from agentenv.api.errors import FeatureUnsupported, RequestInvalid
from agentenv.api.models import Network, NewSandbox
from agentenv.api.views import show_created
from agentenv.orchestrator.base import CreateRequest

_IDEMPOTENCY_KEY = re.compile(r"[a-z0-9-]{1,255}")


async def create_sandbox(call: Call) -> web.Response:
    """Create a sandbox by the second generation's defaults."""
    return await _create(call, call.settings.default_timeout_seconds)


async def create_sandbox_v1(call: Call) -> web.Response:
    """Create a sandbox by the first generation's defaults."""
    return await _create(call, call.settings.default_timeout_v1_seconds)


async def _create(call: Call, default_timeout_seconds: int) -> web.Response:
    idempotency_key = _idempotency_key(call)
    body = await call.body(NewSandbox)
    _refuse_unsupported(body)
    network = body.network or Network()
    sandbox = await call.orchestrator.create(
        CreateRequest(
            template=body.templateID,
            timeout_seconds=default_timeout_seconds if body.timeout is None else body.timeout,
            auto_pause=body.autoPause,
            auto_pause_memory=body.autoPauseMemory is not False,
            auto_resume=body.autoResume is not None and body.autoResume.enabled,
            metadata=body.metadata or {},
            environment=body.envVars or {},
            allow_internet=body.allow_internet_access,
            allow_public_traffic=network.allowPublicTraffic is not False,
            mask_request_host=network.maskRequestHost,
            idempotency_key=idempotency_key,
        )
    )
    return json_answer(show_created(sandbox, call.domain), status=201, headers={"x-agentenv-sandbox-id": sandbox.id})


def _idempotency_key(call: Call) -> str | None:
    keys = call.request.headers.getall("Idempotency-Key", ())
    if not keys:
        return None
    if len(keys) > 1 or _IDEMPOTENCY_KEY.fullmatch(keys[0]) is None:
        raise RequestInvalid("Idempotency-Key must be one value of 1 to 255 characters out of a-z, 0-9 and -")
    return keys[0]


def _refuse_unsupported(body: NewSandbox) -> None:
    """Refuse by name what would make the sandbox other than asked for."""
    if body.autoPauseMemory is False:
        if not body.autoPause:
            raise RequestInvalid("autoPauseMemory false needs autoPause true")
        if body.autoResume is not None and body.autoResume.enabled:
            raise RequestInvalid("autoPauseMemory false and autoResume exclude each other")
    network = body.network or Network()
    unsupported = {
        "network.allowOut": network.allowOut,
        "network.denyOut": network.denyOut,
        "network.httpsPorts": network.httpsPorts,
        "network.egressProxy": network.egressProxy,
        "network.rules": network.rules,
        # An empty list has a meaning of its own here: no DNS server at all.
        "network.dnsServers": None if network.dnsServers is None else "given",
        "volumeMounts": body.volumeMounts,
        "iam": body.iam,
        "customExtensionParams": body.customExtensionParams,
    }
    for name, value in unsupported.items():
        if value:
            raise FeatureUnsupported(f"{name} is not supported by this server; leave it out")
