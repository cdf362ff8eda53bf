"""The verb `aenv server`."""

import asyncio
from pathlib import Path

import click
import uvloop

from agentenv.base import log
from agentenv.main import settings
from agentenv.main.server import serve


@click.command
@click.option("--config", type=click.Path(path_type=Path), help="Configuration file; default: $AENV_CONFIG or /etc.")
@click.option("--home", type=click.Path(path_type=Path), help="Where everything of this server lives.")
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 takes a free one.")
@click.option("--detach/--no-detach", default=None, help="Leave the sandboxes running when told to stop.")
def server(*, config: Path | None, home: Path | None, host: str | None, port: int | None, detach: bool | None) -> None:
    """Run the server until SIGTERM or SIGINT.

    Prints one line with its address when it is ready. Sandboxes of a server that was killed are adopted.
    """
    loaded = settings.load(config)
    api = loaded.api.model_copy(update=_given(host=host, port=port))
    stop = loaded.server.model_copy(update=_given(detach_on_stop=detach))
    changed = loaded.model_copy(update=_given(home=home.absolute() if home else None) | {"api": api, "server": stop})
    log.configure(changed.log.level, changed.log.format)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(changed, announce=lambda url: click.echo(f"listening on {url}")))


def _given(**options: object) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}
