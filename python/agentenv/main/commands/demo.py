"""The verb `aenv demo`."""

import click

from agentenv.main import settings
from agentenv.main.demo.demo import run_demo


@click.command
@click.option("--skip-setup", is_flag=True, help="The machine is prepared: begin with the server.")
def demo(*, skip_setup: bool) -> None:
    """Set this machine up, start a server, drive a sandbox with the official SDK, and leave nothing behind.

    The prepared files stay in the home directory; the demo's server has a home, a port and a network of its own.
    """
    run_demo(settings.load(), skip_setup=skip_setup)
