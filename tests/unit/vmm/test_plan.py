"""Which pages a capture looks at, and what it believes of the layers below."""

from dataclasses import replace

import pytest

from agentenv.vmm.base import Accelerator, MachineFacts
from agentenv.vmm.qemu.lineage import Lineage
from agentenv.vmm.qemu.plan import CapturePlan, Selection, make_plan

FACTS = MachineFacts("qemu", "7.2.22", Accelerator.TCG, "x86_64", "max", "sha256:0")
BOOTED = Lineage(FACTS, 2**27, is_restored=False, is_preloaded=True)
RESTORED = replace(BOOTED, is_restored=True)


def test_first_capture_of_a_booted_machine_takes_what_is_there() -> None:
    plan = make_plan(BOOTED, has_below=False, top=None)

    assert plan == CapturePlan(Selection.OWN, stands_alone=True, compares=False)


def test_restored_machine_that_must_stand_alone_takes_everything() -> None:
    plan = make_plan(RESTORED, has_below=False, top=None)

    assert plan == CapturePlan(Selection.EVERYTHING, stands_alone=True, compares=False)


def test_first_capture_over_the_image_takes_what_is_the_machines_own() -> None:
    plan = make_plan(RESTORED, has_below=True, top="A")

    assert plan == CapturePlan(Selection.OWN, stands_alone=False, compares=False)


@pytest.mark.parametrize("machine", [BOOTED, RESTORED])
def test_tracked_machine_takes_what_was_written(machine: Lineage) -> None:
    tracked = replace(machine, newest_layer="B", is_tracked=True)

    assert make_plan(tracked, has_below=True, top="B") == CapturePlan(
        Selection.WRITTEN, stands_alone=False, compares=False
    )


@pytest.mark.parametrize(
    "lineage, top",
    [
        (BOOTED, "A"),
        (replace(BOOTED, newest_layer="B", is_tracked=False), "B"),
        (replace(BOOTED, newest_layer="B", is_tracked=True), "A"),
        (replace(RESTORED, newest_layer="B", is_tracked=True), "A"),
        (replace(RESTORED, newest_layer="B", is_tracked=True), None),
    ],
    ids=["unknown layers", "tracks lost", "other layers", "other layers of a restored", "layer without identifier"],
)
def test_whoever_does_not_know_compares(lineage: Lineage, top: str | None) -> None:
    plan = make_plan(lineage, has_below=True, top=top)

    assert plan == CapturePlan(Selection.OWN, stands_alone=False, compares=True)
