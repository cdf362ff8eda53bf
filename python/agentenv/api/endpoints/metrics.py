"""GET /metrics: what this process counts, for Prometheus."""

from aiohttp import web

from agentenv.api.call import Call
from agentenv.base import metrics


async def get_metrics(call: Call) -> web.Response:
    """Answer with all metrics in text form."""
    del call
    return web.Response(body=metrics.render(), headers={"Content-Type": metrics.CONTENT_TYPE})
