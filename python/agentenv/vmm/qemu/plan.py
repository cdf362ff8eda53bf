"""Which pages a capture takes, and what it compares them with. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from agentenv.vmm.qemu.lineage import Lineage


class Selection(StrEnum):
    """The pages that are looked at."""

    EVERYTHING = "everything"
    OWN = "own"
    """Pages of the process's own: all of a booted machine, those that differ from the image of a restored one."""
    WRITTEN = "written"
    """Pages that were written since the newest capture."""


@dataclass(frozen=True, slots=True)
class CapturePlan:
    """`stands_alone`: the layer needs none below. `compares`: only pages that differ from those below are written."""

    selection: Selection
    stands_alone: bool
    compares: bool


def make_plan(lineage: Lineage, *, has_below: bool, top: str | None) -> CapturePlan:
    """Return the cheapest way that is right; `top` is the identifier of the highest layer below, if it has one."""
    if not has_below:
        selection = Selection.EVERYTHING if lineage.is_restored else Selection.OWN
        return CapturePlan(selection, stands_alone=True, compares=False)
    if lineage.newest_layer is None and lineage.is_restored:
        # What the caller has below can only be what the machine was restored from.
        return CapturePlan(Selection.OWN, stands_alone=False, compares=False)
    if lineage.is_tracked and top is not None and top == lineage.newest_layer:
        return CapturePlan(Selection.WRITTEN, stands_alone=False, compares=False)
    # Nobody knows what was written since then. What is not the process's own is what it was restored from, which
    # nothing above the image can hide: only own pages were ever captured, and they stay so, or are free memory.
    return CapturePlan(Selection.OWN, stands_alone=False, compares=True)
