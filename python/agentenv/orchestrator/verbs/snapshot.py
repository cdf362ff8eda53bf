"""The verb snapshot: the sandbox stands still for a moment and runs on; what it was then can be started any time."""

from agentenv.images.errors import TemplateNotFound
from agentenv.orchestrator.capturing import Wish, settle_running, take_snapshot
from agentenv.orchestrator.errors import NameOfImage
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.turns import Turn
from agentenv.snapshots import names
from agentenv.snapshots.base import SnapshotKind, SnapshotManifest


async def snapshot(turn: Turn, name: str | None, *, with_memory: bool) -> SnapshotManifest:
    """Take a snapshot of the sandbox of a turn. After an error there is none, and the sandbox runs on."""
    wish = Wish(
        kind=SnapshotKind.SNAPSHOT, names=() if name is None else (names.canonical(name),), with_memory=with_memory
    )
    return await take_snapshot(turn, wish, lambda manifest: settle_running(turn.fleet, turn.record, manifest))


async def check_name(fleet: Fleet, name: str) -> None:
    """Refuse a name that no snapshot can have, before anything is captured. Raises `NameInvalid`, `NameOfImage`.

    A name that another snapshot has is no conflict: it goes on to the newer one.
    """
    canonical = names.canonical(name)
    try:
        await fleet.catalogue.resolve(canonical)
    except TemplateNotFound:
        return
    raise NameOfImage(f"'{name}' is the name of an image of this server; choose another name for the snapshot")
