"""What `aenv layer` prints: tables for people, tab-separated lines for programs, JSON for both."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from agentenv.base.units import format_bytes
from agentenv.blocks.layers import LayerDescription, Verification, WrittenLayer
from agentenv.cli import tables
from agentenv.client.text import printable

_HEADS = ("WHAT", "VALUE")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one file: a verification, or one sentence about why there is none."""

    path: Path
    verification: Verification | None = None
    error: str | None = None

    @property
    def checked(self) -> str:
        """How deep the file was checked."""
        assert self.verification is not None
        return "blocks" if self.verification.description.has_checksums else "structure"

    def as_json(self) -> dict[str, object]:
        """Return the verdict for programs."""
        verification = self.verification
        return {
            "path": str(self.path),
            "digest": None if verification is None else verification.digest,
            "checked": None if verification is None else self.checked,
            "error": self.error,
        }


def show_description(layer: LayerDescription, *, as_json: bool) -> None:
    """Print what a layer says about itself."""
    _show(_description_for_people(layer), _description_fields(layer), as_json=as_json)


def show_written(written: WrittenLayer, *, as_json: bool) -> None:
    """Print what was written."""
    _show(_written_for_people(written), _written_fields(written), as_json=as_json)


def show_verdicts(verdicts: Sequence[Verdict], *, as_json: bool) -> None:
    """Print verdicts; those of bad files go to standard error unless JSON has them."""
    if as_json:
        tables.print_json([verdict.as_json() for verdict in verdicts])
        return
    rows = [(str(one.path), one.checked, one.verification.digest) for one in verdicts if one.verification is not None]
    if not tables.is_for_people():
        tables.print_lines(rows)
    elif rows:
        tables.print_table(("FILE", "CHECKED", "DIGEST"), rows)
    for verdict in verdicts:
        if verdict.error is not None:
            click.echo(f"aenv: {verdict.error}", err=True)


def _show(for_people: dict[str, str], fields: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        tables.print_json(fields)
    elif tables.is_for_people():
        tables.print_table(_HEADS, list(for_people.items()))
    else:
        tables.print_lines([(name, _plain(value)) for name, value in fields.items()])


def _plain(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _description_fields(layer: LayerDescription) -> dict[str, object]:
    return {
        "layer_id": layer.layer_id,
        "parent_id": layer.parent_id,
        "tag": printable(layer.tag.decode("utf-8", "replace")),
        "virtual_size_bytes": layer.virtual_size_bytes,
        "data_bytes": layer.data_bytes,
        "zeroed_bytes": layer.zeroed_bytes,
        "entries": layer.entries,
        "file_bytes": layer.file_bytes,
        "layer_bytes": layer.layer_bytes,
        "is_archive": layer.is_archive,
        "compression": layer.compression,
        "block_bytes": layer.block_bytes,
        "has_checksums": layer.has_checksums,
    }


def _description_for_people(layer: LayerDescription) -> dict[str, str]:
    size = layer.virtual_size_bytes
    wrapping = ["archive"] if layer.is_archive else []
    wrapping += [layer.compression] if layer.compression else []
    return {
        "identifier": layer.layer_id or "none",
        "made on": layer.parent_id or "none",
        "tag": printable(layer.tag.decode("utf-8", "replace")) or "none",
        "disk": "as large as the layer below" if size is None else format_bytes(size),
        "data": f"{format_bytes(layer.data_bytes)} in {layer.entries} entries",
        "zeros": format_bytes(layer.zeroed_bytes),
        "file": format_bytes(layer.file_bytes),
        "wrapped in": " of ".join(wrapping) or "nothing",
        "checksums": "for every block" if layer.has_checksums else "none",
    }


def _written_fields(written: WrittenLayer) -> dict[str, object]:
    return {
        "digest": written.digest,
        "file_bytes": written.file_bytes,
        "layer_bytes": written.layer_bytes,
        "virtual_size_bytes": written.virtual_size_bytes,
        "data_bytes": written.data_bytes,
        "entries": written.entries,
    }


def _written_for_people(written: WrittenLayer) -> dict[str, str]:
    return {
        "digest": written.digest,
        "disk": format_bytes(written.virtual_size_bytes),
        "data": f"{format_bytes(written.data_bytes)} in {written.entries} entries",
        "file": format_bytes(written.file_bytes),
    }
