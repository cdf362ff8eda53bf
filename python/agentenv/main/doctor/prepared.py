"""Checks of what `aenv setup` prepares: kernel, initramfs, base image. Reads only."""

import importlib
from collections.abc import Sequence
from pathlib import Path

from agentenv.base.errors import AgentEnvError
from agentenv.guest import provision
from agentenv.images import builder
from agentenv.main.doctor.check import Check, State

_REMEDY = "run `aenv setup`"


async def examine_prepared(home: Path) -> Sequence[Check]:
    """Look for everything that a first sandbox starts from."""
    return [_core_module(), _guest(home), _base_image(home)]


def _core_module() -> Check:
    try:
        importlib.import_module("agentenv_core")
    except ImportError:
        return Check("core_module", State.MISSING, "agentenv_core cannot be loaded", "run `make setup`")
    return Check("core_module", State.OK, "agentenv_core is loaded")


def _guest(home: Path) -> Check:
    try:
        boot = provision.find_boot_files(home)
    except AgentEnvError as error:
        return Check("guest", State.MISSING, error.message.partition(";")[0], _REMEDY)
    return Check("guest", State.OK, f"kernel {boot.kernel.parent.name}, {boot.initramfs.name}")


def _base_image(home: Path) -> Check:
    found = builder.find_base(home)
    if found is None:
        return Check("base_image", State.MISSING, "there is no template called base", _REMEDY)
    return Check("base_image", State.OK, f"{found[1].template_id} ({found[1].built_from.partition(':')[0]})")
