"""Disks as block devices, proven in a guest: its kernel has ublk, whatever that of the host has."""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2b import Sandbox

from agentenv.base.units import MIB
from agentenv.blocks import program
from agentenv.guest import provision
from support.guest import ublk_trial
from support.server import Access, prepared_home

_UPLOAD_SECONDS, _TRIAL_SECONDS = 120, 250


@pytest.fixture(scope="module")
def module() -> bytes:
    """The driver that belongs to the guest's kernel."""
    kernel = provision.find_boot_files(prepared_home()).kernel
    (path,) = kernel.parent.rglob("ublk_drv.ko.xz")
    return lzma.decompress(path.read_bytes())


@pytest.fixture
def sandbox(access: Access) -> Iterator[Sandbox]:
    """A sandbox whose kernel is the test's to load modules into."""
    own = Sandbox.create(timeout=600, request_timeout=120, **access)
    yield own
    own.kill()


def test_block_devices_hold_what_files_hold(sandbox: Sandbox, module: bytes) -> None:
    blockd = program.find(prepared_home() / "boot").read_bytes()
    for name, content in (("aenv-blockd", blockd), ("ublk_drv.ko", module)):
        sandbox.files.write(f"/root/{name}", content, user="root", request_timeout=_UPLOAD_SECONDS)
    sandbox.files.write("/root/trial.py", Path(ublk_trial.__file__).read_text(), user="root")
    command = "chmod +x /root/aenv-blockd && python3 /root/trial.py /root/trial /root/aenv-blockd /root/ublk_drv.ko"
    output = sandbox.commands.run(command, user="root", timeout=_TRIAL_SECONDS, request_timeout=_TRIAL_SECONDS)
    seen: dict[str, Any] = json.loads(output.stdout)

    assert seen["without_driver"]["exit"] == 1
    assert "ublk_drv" in seen["without_driver"]["words"]
    assert seen["without_driver"]["auto"] == ["fuse"]
    assert seen["exporters"] == ["fuse", "ublk"]
    assert seen["node"] == {
        "is_block": True,
        "mode": "0o600",
        "owner": ublk_trial.OWNER,
        "bytes": 64 * MIB,
        "cache": "write back",
        "discard_bytes": 128 * MIB,
        "is_kept": True,
        # The kernel neither has looked for partitions of a guest nor can be made to.
        "rescan": "EINVAL",
        "partitions": [],
        "resize": "fixed_size",
        "is_gone": True,
        "devices_left": [],
    }
    _check_content(seen)
    _check_users(seen)
    _check_deaths(seen["deaths"])
    assert seen["change_of_mind"] == {"exporters": ["fuse"], "is_file": True, "is_same": True, "devices_left": []}
    assert seen["exit"] == 0


def _check_content(seen: dict[str, Any]) -> None:
    files = seen["file_system"]
    assert files.pop("flushes") > 0
    assert files == {
        "close_while_mounted": "image_in_use",
        "is_still_there": True,
        "is_same": True,
        "is_equal": True,
        "memory_is_file": True,
        "read_only": "EPERM",
        "errors": 0,
    }
    assert seen["page_cache"].pop("frozen_microseconds") > 0
    assert seen["page_cache"] == {"is_in_layer": True, "is_overwritten": True}
    assert seen["model"]["failures"] == []
    assert min(seen["model"]["zeroed_bytes"], seen["model"]["flushes"]) > 0


def _check_users(seen: dict[str, Any]) -> None:
    assert seen["users"] == {
        "users": 1,
        "refused": "image_in_use",
        "is_still_there": True,
        "after_force": "ENOSPC",
        "is_reopened": True,
        "is_gone": True,
        "devices_left": [],
    }
    assert seen["failure"] == {"images": [], "is_clean": True, "code": "image_not_shown", "devices_left": []}


def _check_deaths(deaths: dict[str, Any]) -> None:
    assert deaths["failures"] == []
    assert deaths["operations"] > 0
    assert deaths["is_same"]
    assert deaths["adopted"] == len(deaths["server_back_seconds"]) + 1
    assert deaths["shutdown"] == "images_open"
    assert deaths["devices_left"] == []
