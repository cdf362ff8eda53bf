"""Renders docs/reference/e2b.md from the checklist. Run it as a module to write the page anew."""

from collections import defaultdict

from contract import checklist, clients
from contract.checklist import Excuse, Line, Proof
from contract.places import ALONE, MACHINE

PAGE = checklist.ROOT / "docs/reference/e2b.md"
COMMAND = "PYTHONPATH=tests .venv/bin/python -m contract.reference"
_PLACES = {ALONE: "daemon alone", MACHINE: "server and VM"}
_ORDER = ["Python", "Python async", "older Python", "JavaScript", "CLI", "raw HTTP"]
_HEAD = f"""<!-- Made by `{COMMAND}`; change tests/contract instead. -->
# What clients of E2B find here

The official clients, unmodified, are run against this server by `tests/contract`: Python `e2b` {clients.NEWEST_VERSION}
(both kinds) and {clients.OLDER_VERSION} ("older Python"), JavaScript `e2b` 2.51.0, `@e2b/cli` 2.19.0, and plain HTTP
for what they hide. Tests that concern the guest alone run twice: against the daemon alone, and through a server into a
virtual machine. A line *passes* when all tests that name it do.
"""


def render() -> str:
    """Return the whole page."""
    by_line = defaultdict(list)
    for proof in checklist.proofs():
        by_line[proof.line].append(proof)
    excused = checklist.exceptions()
    parts = [_HEAD, _summary(by_line, excused)]
    for letter, (title, lines) in checklist.groups().items():
        rows = [_row(line, by_line[line.id], excused.get(line.id)) for line in lines]
        parts.append(f"## {letter}. {title}\n\n| Line | Behaviour | State |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _summary(by_line: dict[str, list[Proof]], excused: dict[str, Excuse]) -> str:
    counts: dict[str, int] = defaultdict(int)
    for line in checklist.lines():
        proofs = by_line[line.id]
        failing = any(proof.failure for proof in proofs)
        counts["known to fail" if failing else "passes" if proofs else str(excused[line.id].reason)] += 1
    states = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items(), key=lambda pair: -pair[1]))
    return f"Of {len(checklist.lines())} lines: {states}.\n"


def _row(line: Line, proofs: list[Proof], excuse: Excuse | None) -> str:
    state = _proven(proofs) if proofs else _excused(excuse)
    return f"| {line.id} | {line.text} | {state} |"


def _proven(proofs: list[Proof]) -> str:
    names = sorted({proof.client for proof in proofs}, key=_ORDER.index)
    places = [_PLACES[place] for place in (ALONE, MACHINE) if place in {proof.place for proof in proofs}]
    failures = sorted({proof.failure for proof in proofs if proof.failure})
    verdict = f"**fails**: {'; '.join(failures)}" if failures else "passes"
    return f"{verdict} ({', '.join(names)}; {', '.join(places)})"


def _excused(excuse: Excuse | None) -> str:
    assert excuse is not None, "a line is neither tested nor excused"
    tests = "".join(f" `{test}`" for test in excuse.tests)
    return f"**{excuse.reason}**: {excuse.why}{tests}"


if __name__ == "__main__":
    PAGE.write_text(render())
