"""The one way in: decides between data plane and control plane, and lets no exception out as anything but JSON."""

import secrets

import structlog
from aiohttp import web

from agentenv.api.answers import json_answer
from agentenv.api.controlplane import ControlPlane
from agentenv.api.dataplane import DataPlane
from agentenv.api.destination import find_destination, origin_form
from agentenv.api.settings import ApiSettings
from agentenv.api.statuses import error_answer
from agentenv.base import log
from agentenv.base.errors import AgentEnvError

_log = log.get("api")


class Front:
    """Answers every request of every connection."""

    def __init__(self, control_plane: ControlPlane, data_plane: DataPlane, settings: ApiSettings) -> None:
        self._control_plane = control_plane
        self._data_plane = data_plane
        self._domains = tuple(domain.lower().rstrip(".") for domain in settings.domains)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        try:
            destination = find_destination(request.headers, request.raw_path, self._domains)
            if destination is not None:
                return await self._data_plane.carry(request, destination)
            with structlog.contextvars.bound_contextvars(request_id=secrets.token_hex(8)):
                return await self._control_plane.answer(request, origin_form(request.raw_path, request.headers))
        except AgentEnvError as error:
            return error_answer(error)
        except Exception as error:
            if isinstance(error, ConnectionError) and (request.transport is None or request.transport.is_closing()):
                # The client has gone, and nobody is left to answer.
                raise
            incident = secrets.token_hex(8)
            _log.exception("request_failed", incident=incident, method=request.method)
            if request.writer.output_size > 0:
                # Half an answer is out; only breaking the connection tells the client so.
                raise
            return json_answer(
                {"code": 500, "message": f"internal error; the server's log has it as incident {incident}"}, status=500
            )
