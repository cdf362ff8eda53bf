"""The step that packs what guests boot from: a record that cannot be read is made anew, never a dead end."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentenv.base.aio import BlockingPool
from agentenv.guest import provision
from agentenv.main.setup.steps.initramfs import Initramfs


@pytest.fixture
def step(tmp_path: Path) -> Initramfs:
    kernel, daemon = tmp_path / "kernels" / "1", tmp_path / "boot" / "daemon-1"
    kernel.mkdir(parents=True)
    (kernel / "vmlinux").write_bytes(b"kernel")
    daemon.parent.mkdir()
    daemon.write_bytes(b"daemon")
    context: Any = SimpleNamespace(home=tmp_path, work=tmp_path, pool=BlockingPool("test", 1))
    found: list[Any] = [SimpleNamespace(find=lambda: kernel), SimpleNamespace(find=lambda: daemon)]
    return Initramfs(context, *found)


async def test_what_was_packed_is_current_and_names_its_daemon(step: Initramfs, tmp_path: Path) -> None:
    assert not (await step.inspect()).is_current
    await step.perform(lambda _: None)

    assert (await step.inspect()).is_current
    manifest = provision.read_boot_manifest(tmp_path)
    assert manifest is not None
    assert (manifest.kernel, manifest.daemon) == ("kernels/1/vmlinux", "boot/daemon-1")


@pytest.mark.parametrize("text", ["", "{", "{}", '{"kernel": "k", "initramfs": "i", "inputs": "x", "modules": []}'])
async def test_a_record_that_cannot_be_read_is_made_anew(step: Initramfs, tmp_path: Path, text: str) -> None:
    (tmp_path / "boot" / "manifest.json").write_text(text)

    assert not (await step.inspect()).is_current
    await step.perform(lambda _: None)
    assert (await step.inspect()).is_current
