"""`aenv list`: which sandboxes there are."""

from datetime import UTC, datetime

import click

from agentenv.cli import tables
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.values import PairType, to_map
from agentenv.client.base import Flags, ListedSandbox, SandboxFilter, SandboxState

_HEADS = ("ID", "TEMPLATE", "STATE", "STARTED", "EXPIRES IN", "CPU", "MEMORY")


@click.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice([state.value for state in SandboxState]),
    multiple=True,
    help="Only those in this state; repeatable.",
)
@click.option("--metadata", type=PairType(), multiple=True, help="Only those with this label; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@server_options
def list_sandboxes(
    *, flags: Flags, states: tuple[str, ...], metadata: tuple[tuple[str, str], ...], as_json: bool
) -> None:
    """List sandboxes, newest first.

    Where the output is no terminal: one line each, tab-separated, without a head: id, template, state, start and
    end (RFC 3339), virtual CPUs, memory in MiB.
    """
    wanted = SandboxFilter(frozenset(map(SandboxState, states)), to_map(metadata))

    async def work() -> list[ListedSandbox]:
        async with open_server(flags) as server:
            return [sandbox async for sandbox in server.api.list_all(wanted)]

    sandboxes = run(work())
    if as_json:
        tables.print_json([_fields(sandbox) for sandbox in sandboxes])
    elif tables.is_for_people():
        _print_for_people(sandboxes)
    else:
        tables.print_lines([_plain_row(sandbox) for sandbox in sandboxes])


def _print_for_people(sandboxes: list[ListedSandbox]) -> None:
    if not sandboxes:
        click.echo("No sandboxes. Start one:  aenv start", err=True)
        return
    now = datetime.now(UTC)
    tables.print_table(_HEADS, [_row(sandbox, now) for sandbox in sandboxes])


def _row(sandbox: ListedSandbox, now: datetime) -> tuple[str, ...]:
    # A paused sandbox has no deadline: what the API reports as its end is the one it had.
    left = (sandbox.end_at - now).total_seconds()
    expires = "-" if sandbox.state is SandboxState.PAUSED else describe_duration(max(0, left))
    return (
        sandbox.sandbox_id,
        sandbox.alias or sandbox.template_id,
        sandbox.state.value,
        f"{describe_duration(max(0, (now - sandbox.started_at).total_seconds()))} ago",
        expires,
        str(sandbox.cpu_count),
        f"{sandbox.memory_mib} MiB",
    )


def describe_duration(seconds: float) -> str:
    """Return a duration in its two largest units: `45s`, `4m5s`, `2h10m`, `3d4h`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    first = next((index for index, (count, _) in enumerate(parts) if count), len(parts))
    return "".join(f"{count}{unit}" for count, unit in parts[first : first + 2] if count) or "0s"


def _plain_row(sandbox: ListedSandbox) -> tuple[str, ...]:
    return (
        sandbox.sandbox_id,
        sandbox.alias or sandbox.template_id,
        sandbox.state.value,
        _timestamp(sandbox.started_at),
        _timestamp(sandbox.end_at),
        str(sandbox.cpu_count),
        str(sandbox.memory_mib),
    )


def _fields(sandbox: ListedSandbox) -> dict[str, object]:
    # The words of the API, so that nobody has to learn two vocabularies.
    return {
        "sandboxID": sandbox.sandbox_id,
        "templateID": sandbox.template_id,
        "alias": sandbox.alias,
        "state": sandbox.state.value,
        "startedAt": _timestamp(sandbox.started_at),
        "endAt": _timestamp(sandbox.end_at),
        "cpuCount": sandbox.cpu_count,
        "memoryMB": sandbox.memory_mib,
        "diskSizeMB": sandbox.disk_size_mib,
        "envdVersion": sandbox.envd_version,
        "metadata": sandbox.metadata,
    }


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
