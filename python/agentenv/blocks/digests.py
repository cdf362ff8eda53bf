"""What is known of the digests of one disk's layers: a small file beside its writable layer.

It only saves computing: the block daemon's table says which layers a disk has.
"""

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agentenv.base import log

FILE_NAME = "digests.json"
_LIMIT_BYTES = 1024 * 1024
_log = log.get("blocks")
_digests: TypeAdapter[dict[Path, str]] = TypeAdapter(dict[Path, str])


def read(directory: Path) -> dict[Path, str]:
    """Return the known digests by path; none when the file is not there or damaged, and the log says so then."""
    path = directory / FILE_NAME
    try:
        with path.open("rb") as file:
            return _digests.validate_json(file.read(_LIMIT_BYTES))
    except (OSError, ValidationError) as error:
        _log.warning("layer_digests_unknown", path=str(path), reason=type(error).__name__)
        return {}


def write(directory: Path, digests: dict[Path, str]) -> None:
    """Remember `digests`. Not durable: after the host went down, no disk of it is used again."""
    temporary = directory / f".{FILE_NAME}"
    temporary.write_bytes(_digests.dump_json(digests))
    temporary.replace(directory / FILE_NAME)
