"""The name of this host's processor, by which a state of a guest that ran on it is told from one of another."""

import hashlib
import re
from pathlib import Path

_MODEL = re.compile(r"^(?:model name|CPU part)\s*:\s*(.*)$", re.MULTILINE)
_FLAGS = re.compile(r"^(?:flags|Features)\s*:\s*(.*)$", re.MULTILINE)


def read_processor(path: Path = Path("/proc/cpuinfo")) -> str:
    """Return the model, and a digest of its features, which firmware and hypervisors may hide."""
    return parse_processor(path.read_text(encoding="utf-8", errors="replace"))


def parse_processor(cpuinfo: str) -> str:
    """Return what a /proc/cpuinfo tells of the first processor; the order of the features does not matter."""
    model, flags = _MODEL.search(cpuinfo), _FLAGS.search(cpuinfo)
    features = " ".join(sorted(flags[1].split())) if flags else ""
    return f"{model[1].strip() if model else 'unknown'} {hashlib.sha256(features.encode()).hexdigest()[:12]}"
