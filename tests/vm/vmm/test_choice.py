"""The accelerator is chosen by booting the provisioned kernel."""

from pathlib import Path

import pytest

from agentenv.vmm.base import Accelerator, Capability
from agentenv.vmm.choice import Selector
from agentenv.vmm.errors import NoAccelerator
from agentenv.vmm.qemu.processes import find_orphans
from agentenv.vmm.settings import AcceleratorChoice, PreloadChoice, VmmSettings
from support.laboratory import Laboratory

pytestmark = pytest.mark.vm


def _selector(laboratory: Laboratory, kernel: Path, **settings: object) -> Selector:
    return Selector(
        settings=VmmSettings.model_validate(settings),
        kernel=kernel,
        directory=laboratory.machines / "vmm",
        supervisor=laboratory.supervisor,
    )


async def test_emulation_runs_everywhere_and_is_remembered(laboratory: Laboratory) -> None:
    selector = _selector(laboratory, laboratory.kernel, accelerator=AcceleratorChoice.TCG)

    selection = await selector.select(fresh=True)
    remembered = laboratory.machines / "vmm" / "verdicts.json"
    written = remembered.stat().st_mtime_ns
    again = await selector.select()

    assert selection.driver.accelerator is Accelerator.TCG
    assert (selection.rejected, again.rejected) == ((), ())
    assert remembered.stat().st_mtime_ns == written, "nothing was tried again"
    assert find_orphans(laboratory.machines) == []
    assert Capability.LIVE_CAPTURE in again.driver.capabilities, "the preload library works with this QEMU"
    left = {entry.name.partition("-")[0] for entry in remembered.parent.iterdir()}
    assert left == {"verdicts.json", "preload"}


async def test_library_can_be_left_out(laboratory: Laboratory) -> None:
    wanted = {"accelerator": AcceleratorChoice.TCG, "qemu_preload": PreloadChoice.OFF}
    selector = _selector(laboratory, laboratory.kernel, **wanted)

    selection = await selector.select()

    assert Capability.LIVE_CAPTURE not in selection.driver.capabilities


async def test_kernel_that_boots_nowhere_is_reported_with_every_reason(
    laboratory: Laboratory, shared_directory: Path
) -> None:
    nonsense = shared_directory / "no-kernel"
    nonsense.write_bytes(b"nothing that boots" * 1000)

    with pytest.raises(NoAccelerator, match=r"no guest starts on this host \(kvm: .*; tcg: "):
        await _selector(laboratory, nonsense).select()


async def test_choice_without_a_kernel_says_what_to_do(laboratory: Laboratory, shared_directory: Path) -> None:
    with pytest.raises(NoAccelerator, match="run `aenv setup`"):
        await _selector(laboratory, shared_directory / "absent").select()
