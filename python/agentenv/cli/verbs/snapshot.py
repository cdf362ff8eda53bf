"""`aenv snapshot`: take, list, show or delete snapshots."""

from collections.abc import Sequence
from datetime import UTC

import click

from agentenv.base.ids import SandboxId
from agentenv.base.units import format_bytes
from agentenv.cli import exit_codes, tables
from agentenv.cli.server import open_server, run, server_options
from agentenv.cli.values import SandboxIdType
from agentenv.client.base import Flags, Snapshot
from agentenv.client.text import printable

_HEADS = ("ID", "NAMES", "SANDBOX", "CREATED", "SIZE")


@click.group("snapshot")
def snapshot() -> None:
    """Take, list, show or delete snapshots: states of sandboxes to start from, or to go back to."""


@snapshot.command("create")
@click.argument("sandbox_id", type=SandboxIdType(), metavar="ID")
@click.option("--name", help="Name to start it by; it goes on to this snapshot when an older one has it.")
@click.option("--no-memory", is_flag=True, help="Keep the disk alone; what is started from it boots.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@server_options
def create(*, flags: Flags, sandbox_id: SandboxId, name: str | None, no_memory: bool, as_json: bool) -> None:
    """Take a snapshot of a running sandbox, which runs on, and print the snapshot's id."""

    async def work() -> Snapshot:
        async with open_server(flags) as server:
            return await server.snapshots.create(sandbox_id, name, with_memory=not no_memory)

    taken = run(work())
    if as_json:
        tables.print_json(_fields(taken))
    else:
        click.echo(printable(taken.snapshot_id))


@snapshot.command("list")
@click.option("--sandbox", "sandbox_id", type=SandboxIdType(), metavar="ID", help="Only those of this sandbox.")
@click.option("--name", help="Only the one that has this name.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@server_options
def list_snapshots(*, flags: Flags, sandbox_id: SandboxId | None, name: str | None, as_json: bool) -> None:
    """List snapshots, newest first.

    Where the output is no terminal: one line each, tab-separated, without a head: id, names joined by commas, sandbox,
    time (RFC 3339), size in bytes of what it does not share with its parent, id of the parent.
    """

    async def work() -> list[Snapshot]:
        async with open_server(flags) as server:
            return [one async for one in server.snapshots.list_all(sandbox_id=sandbox_id, name=name)]

    found = run(work())
    if as_json:
        tables.print_json([_fields(one) for one in found])
    elif not tables.is_for_people():
        tables.print_lines([_plain_row(one) for one in found])
    elif found:
        tables.print_table(_HEADS, [_row(one, "") for one in found])
    else:
        click.echo("No snapshots. Take one:  aenv snapshot create ID", err=True)


@snapshot.command("tree")
@click.argument("snapshot_reference", metavar="SNAPSHOT")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, parents before children.")
@server_options
def tree(*, flags: Flags, snapshot_reference: str, as_json: bool) -> None:
    """Show the tree that SNAPSHOT (an id or a name) belongs to.

    Where the output is no terminal: lines as those of `list`, parents before children.
    """

    async def work() -> list[Snapshot]:
        async with open_server(flags) as server:
            return await server.snapshots.tree(snapshot_reference)

    found = run(work())
    if as_json:
        tables.print_json([_fields(one) for one in found])
    elif tables.is_for_people():
        tables.print_table(_HEADS, [_row(one, prefix) for one, prefix in draw(found)])
    else:
        tables.print_lines([_plain_row(one) for one in found])


@snapshot.command("delete")
@click.argument("snapshot_references", nargs=-1, required=True, metavar="SNAPSHOT...")
@server_options
@click.pass_context
def delete(ctx: click.Context, *, flags: Flags, snapshot_references: tuple[str, ...]) -> None:
    """Delete snapshots (ids or names) and print those that were there. Sandboxes made from them run on."""

    async def work() -> bool:
        is_done = True
        async with open_server(flags) as server:
            for reference in dict.fromkeys(snapshot_references):
                if await server.snapshots.delete(reference):
                    click.echo(printable(reference))
                else:
                    click.echo(f"aenv: there is no snapshot {printable(reference)}", err=True)
                    is_done = False
        return is_done

    ctx.exit(0 if run(work()) else exit_codes.FAILURE)


def draw(snapshots: Sequence[Snapshot]) -> list[tuple[Snapshot, str]]:
    """Return the snapshots of a tree, each behind its parent, with what is drawn in front of it."""
    known = {one.snapshot_id for one in snapshots}
    rows: list[tuple[Snapshot, str]] = []
    roots = [one for one in snapshots if one.parent_id not in known]
    # A list of what is still to be drawn: the depth of a tree is its users' choice, and the stack's is not.
    waiting = [(root, "", "") for root in reversed(roots)]
    while waiting:
        one, prefix, below = waiting.pop()
        rows.append((one, prefix))
        children = [child for child in snapshots if child.parent_id == one.snapshot_id]
        for child in reversed(children):
            is_last = child is children[-1]
            waiting.append((child, below + ("└─ " if is_last else "├─ "), below + ("   " if is_last else "│  ")))
    return rows


def _row(one: Snapshot, prefix: str) -> tuple[str, ...]:
    created = "-" if one.created_at is None else f"{one.created_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    return (
        prefix + one.snapshot_id,
        ", ".join(one.names) or "-",
        one.sandbox_id or "-",
        created,
        format_bytes(one.size_bytes),
    )


def _plain_row(one: Snapshot) -> tuple[str, ...]:
    return (
        one.snapshot_id,
        ",".join(one.names),
        one.sandbox_id or "",
        _timestamp(one) or "",
        str(one.size_bytes),
        one.parent_id or "",
    )


def _fields(one: Snapshot) -> dict[str, object]:
    # The words of the API.
    return {
        "snapshotID": one.snapshot_id,
        "names": list(one.names),
        "parentID": one.parent_id,
        "sandboxID": one.sandbox_id,
        "createdAt": _timestamp(one),
        "memoryMB": one.memory_mib,
        "sizeBytes": one.size_bytes,
    }


def _timestamp(one: Snapshot) -> str | None:
    if one.created_at is None:
        return None
    return one.created_at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
