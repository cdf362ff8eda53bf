"""What earlier trials found, remembered for as long as nothing changes that they depend on."""

import hashlib
import json
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from agentenv.base.files import write_atomically
from agentenv.vmm.base import Accelerator
from agentenv.vmm.qemu import kvm

_MODEL = re.compile(r"^model name\s*:\s*(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a trial: `fault` is None when a guest ran."""

    accelerator: Accelerator
    fault: str | None


class VerdictFile:
    """Verdicts in one small JSON file, valid for one key; a file that is damaged or of another key is empty."""

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key

    def find(self, accelerator: Accelerator) -> Verdict | None:
        """Return what is remembered of an accelerator."""
        faults = self._read()
        return Verdict(accelerator, faults[accelerator.value]) if accelerator.value in faults else None

    def remember(self, verdict: Verdict) -> None:
        """Add or replace a verdict."""
        faults = {**self._read(), verdict.accelerator.value: verdict.fault}
        write_atomically(self._path, json.dumps({"key": self._key, "faults": faults}, indent=2).encode() + b"\n")

    def _read(self) -> dict[str, str | None]:
        try:
            content = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):
            return {}
        if not isinstance(content, dict) or content.get("key") != self._key:
            return {}
        faults = content.get("faults")
        return dict(faults) if isinstance(faults, dict) else {}


def compute_key(monitor: str, kernel: Path) -> str:
    """Return a word that changes with anything that a verdict depends on; reads the whole kernel file."""
    with kernel.open("rb") as file:
        guest = hashlib.file_digest(file, "sha256").hexdigest()
    facts = (monitor, guest, platform.release(), platform.version(), _processor(), kvm.identity())
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _processor() -> str:
    match = _MODEL.search(_read(Path("/proc/cpuinfo")))
    return match[1] if match else platform.machine()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
