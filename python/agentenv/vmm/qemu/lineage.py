"""What must be known of a machine to capture it: what it is, what its memory stands on, since when writes are tracked.

Kept in the machine's directory, so that it outlives the server. A lost record costs the next capture, not the machine.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agentenv.vmm.base import MachineFacts

LINEAGE_FILE = "lineage.json"


@dataclass(frozen=True, slots=True)
class Lineage:
    """`is_restored`: the memory stands on a memory image, and what differs from it is the process's own.

    `is_preloaded`: the monitor was started with the preload library. `newest_layer` is the identifier of the layer of
    the newest finished capture. `is_tracked`: the kernel knows every page that was written since that one.
    """

    facts: MachineFacts
    memory_bytes: int
    is_restored: bool
    is_preloaded: bool
    newest_layer: str | None = None
    is_tracked: bool = False


_ADAPTER = TypeAdapter(Lineage)


class LineageFile:
    """The record of one machine, in memory and on disk."""

    def __init__(self, directory: Path, lineage: Lineage) -> None:
        self._path = directory / LINEAGE_FILE
        self._lineage = lineage

    @classmethod
    def create(cls, directory: Path, lineage: Lineage) -> "LineageFile":
        """Write the record of a new machine."""
        record = cls(directory, lineage)
        record._save()
        return record

    @classmethod
    def open(cls, directory: Path) -> "LineageFile | None":
        """Return the record of a machine that runs; None when it is missing or damaged."""
        try:
            lineage = _ADAPTER.validate_json((directory / LINEAGE_FILE).read_bytes())
        except (OSError, ValidationError):
            return None
        return cls(directory, lineage)

    @property
    def lineage(self) -> Lineage:
        """What is known."""
        return self._lineage

    def lose_track(self) -> None:
        """Record, before it happens, that the tracks are read and begun anew."""
        self._change(replace(self._lineage, is_tracked=False))

    def advance(self, layer: str, *, is_tracked: bool) -> None:
        """Record that a capture is finished."""
        self._change(replace(self._lineage, newest_layer=layer, is_tracked=is_tracked))

    def _change(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self._save()

    def _save(self) -> None:
        # Renamed so that it is whole, and not synced: the machine does not outlive its host either.
        new = self._path.with_name(f".{LINEAGE_FILE}.new")
        new.write_bytes(_ADAPTER.dump_json(self._lineage))
        new.replace(self._path)
