"""The checklist: its lines, which tests prove them, and which lines are excused. Reads and judges; runs no test."""

import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
ROOT = _HERE.parents[1]


class Reason(StrEnum):
    """Why a line has no test here."""

    ELSEWHERE = "proven elsewhere"
    UNBUILT = "not built yet"
    DIFFERS = "differs"
    UNTESTED = "not tested"


@dataclass(frozen=True)
class Line:
    """One observable behaviour."""

    id: str
    text: str


@dataclass(frozen=True)
class Proof:
    """One test with one client in one place. `failure` is why it is known to fail, empty when it passes."""

    line: str
    client: str
    place: str
    failure: str


@dataclass(frozen=True)
class Excuse:
    """Why a line is excused; `tests` are those of other suites that prove it."""

    reason: Reason
    why: str
    tests: tuple[str, ...]


def groups() -> dict[str, tuple[str, list[Line]]]:
    """Return title and lines of every group."""
    document = tomllib.loads((_HERE / "checklist.toml").read_text())
    return {
        letter: (group.pop("title"), [Line(f"{letter}{number}", text) for number, text in group.items()])
        for letter, group in document.items()
    }


def lines() -> list[Line]:
    """Return all lines."""
    return [line for _, group in groups().values() for line in group]


def exceptions() -> dict[str, Excuse]:
    """Return the excused lines."""
    document = tomllib.loads((_HERE / "exceptions.toml").read_text())
    return {
        line: Excuse(Reason(entry["reason"]), entry["why"], tuple(entry.get("tests", ())))
        for entry in document["exception"]
        for line in entry["lines"]
    }


@functools.cache
def proofs() -> tuple[Proof, ...]:
    """Return what the tests of this suite prove, as they say without being run."""
    with tempfile.NamedTemporaryFile(prefix="aenv-contract-") as output:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "contract.collector", "--collect-only", _HERE],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.startswith("AENV_CONTRACT_")}
            | {"PYTHONPATH": str(_HERE.parent), OUTPUT: output.name},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return tuple(Proof(**proof) for proof in json.load(output))


# Where the collector writes what it found.
OUTPUT = "AENV_CHECKLIST_OUTPUT"


def write_proofs(found: set[Proof]) -> None:
    """Hand over what was found in a child session."""
    ordered = sorted(found, key=dataclasses.astuple)
    document: list[dict[str, Any]] = [dataclasses.asdict(proof) for proof in ordered]
    Path(os.environ[OUTPUT]).write_text(json.dumps(document))
