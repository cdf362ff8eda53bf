"""`aenv auth`: store, check and forget the key of a server."""

import os
import sys
from urllib.parse import urlsplit

import click

from agentenv.cli.server import open_server, run, server_options
from agentenv.client.base import Flags, SandboxFilter


@click.group("auth", invoke_without_command=True)
@server_options
@click.pass_context
def auth(ctx: click.Context, *, flags: Flags) -> None:
    """Check the key of a server and store both for later.

    What is not given is asked for on a terminal; the key is not shown. They are written to
    ~/.config/agentenv/config.toml, readable by you alone.
    """
    if ctx.invoked_subcommand is not None:
        if flags != Flags():
            raise click.UsageError(f"Give --url and --key after {ctx.invoked_subcommand!r}.")
        return
    _store(_complete(flags))


@auth.command("status")
@server_options
def status(*, flags: Flags) -> None:
    """Say which server and key are used, where they come from, and whether they work."""
    from agentenv.client.configuration import load, locate  # noqa: PLC0415

    configuration = load(flags, os.environ)
    click.echo(f"Server: {configuration.settings.api_url} (from {configuration.url_source})")
    key_source = "none" if configuration.key_source is None else f"from {configuration.key_source}"
    click.echo(f"Key:    {key_source}")
    click.echo(f"File:   {locate(os.environ)}")
    run(_check(flags))
    click.echo("The server accepts the key.")


@auth.command("logout")
def logout() -> None:
    """Forget the stored key; the address of the server stays."""
    from agentenv.client.configuration import forget_key, locate  # noqa: PLC0415

    path = locate(os.environ)
    click.echo(f"Removed the key from {path}." if forget_key(path) else "No key is stored.")


def _complete(flags: Flags) -> Flags:
    from agentenv.client.configuration import load  # noqa: PLC0415

    can_ask = sys.stdin.isatty()
    url = flags.url or load(Flags(), os.environ).settings.api_url
    if flags.url is None and can_ask:
        url = click.prompt("Server", default=url, err=True)
    key = flags.key
    if key is None and can_ask:
        key = click.prompt("API key", hide_input=True, err=True)
    if key is None:
        raise click.UsageError("Give the key with --key: there is no terminal to ask for it.")
    return Flags(url, key)


def _store(flags: Flags) -> None:
    from agentenv.client.configuration import is_loopback, locate, store  # noqa: PLC0415

    assert flags.url is not None
    assert flags.key is not None
    run(_check(flags))
    path = locate(os.environ)
    store(path, flags.url, flags.key)
    click.echo(f"The server accepts the key. Stored in {path}.")
    if urlsplit(flags.url).scheme == "http" and not is_loopback(flags.url):
        click.echo("Note: without https, the key crosses the network readable by others.", err=True)


async def _check(flags: Flags) -> None:
    async with open_server(flags) as server:
        await server.api.list_page(SandboxFilter(), limit=1)
