"""The JavaScript clients: installed from the lock file, run on Node. Owns nothing that outlives the checkout."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.places import Place

DIRECTORY = Path(__file__).with_name("js")
# Last comes the Node that `scripts/bootstrap dev` installs where the system has none that is new enough.
PATH = f"{os.environ['PATH']}{os.pathsep}{Path(sys.executable).parent}"
_STAMP = DIRECTORY / "node_modules/.agentenv-installed"
# The calls by which a file of tests says what it proves.
_CALL = re.compile(r"^(line|machineLine)\('([A-Z0-9 ]+)', '([^']+)'", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One JavaScript test."""

    file: str
    ids: tuple[str, ...]
    name: str
    needs_machine: bool

    @property
    def title(self) -> str:
        return f"{' '.join(self.ids)}: {self.name}"


def cases() -> list[Case]:
    """Return every test that the files hold, found in their text."""
    return [
        Case(path.name, tuple(ids.split()), name, call == "machineLine")
        for path in sorted(DIRECTORY.glob("*.test.mjs"))
        for call, ids, name in _CALL.findall(path.read_text())
    ]


def install() -> None:
    """Install the clients as the lock file says; nothing happens when that was done."""
    wanted = hashlib.sha256((DIRECTORY / "package-lock.json").read_bytes()).hexdigest()
    if _STAMP.is_file() and _STAMP.read_text() == wanted:
        return
    assert shutil.which("npm", path=PATH), "npm is missing: run `scripts/bootstrap dev`"
    words = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
    environment = os.environ | {"PATH": PATH}
    subprocess.run(["npm", *words], cwd=DIRECTORY, env=environment, check=True, stdout=subprocess.DEVNULL)
    _STAMP.write_text(wanted)


def run_tests(place: Place) -> dict[str, Any]:
    """Run all files against a place; return the result of each test by its title."""
    files = sorted({case.file for case in cases()})
    reporter = ("--test-reporter", "./reporter.mjs", "--test-reporter-destination", "stdout")
    finished = subprocess.run(
        ["node", "--test", "--test-force-exit", *reporter, *files],
        cwd=DIRECTORY,
        env=os.environ | place.handed_over() | {"PATH": PATH, "AENV_CONTRACT_URL": place.url},
        stdout=subprocess.PIPE,
        check=False,
        text=True,
    )
    results = [json.loads(line) for line in finished.stdout.splitlines()]
    return {result["name"]: result for result in results}
