"""Runs a setup from settings to reports: puts the steps in order and owns what they share."""

from pathlib import Path
from typing import Protocol

from agentenv.base.aio import BlockingPool
from agentenv.base.clock import Clock
from agentenv.blocks.settings import BlocksSettings
from agentenv.guest.architecture import host_architecture
from agentenv.guest.settings import GuestSettings
from agentenv.images.settings import ImagesSettings
from agentenv.main.setup import host
from agentenv.main.setup.apt import Apt
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import HostUnknown
from agentenv.main.setup.host import Distribution
from agentenv.main.setup.step import Display, Mode, Step, StepReport, run_stages
from agentenv.main.setup.steps.base_image import BaseImage
from agentenv.main.setup.steps.block_daemon import BlockDaemonProgram
from agentenv.main.setup.steps.core_module import CoreModule
from agentenv.main.setup.steps.daemon import GuestDaemon
from agentenv.main.setup.steps.initramfs import Initramfs
from agentenv.main.setup.steps.kernel import GuestKernel
from agentenv.main.setup.steps.packages import HostPackages
from agentenv.main.setup.workspace import open_workspace

_THREADS = 4


class ProvisionSettings(Protocol):
    """The part of the settings tree that setup and doctor read."""

    @property
    def home(self) -> Path:
        """Where everything of the server lives."""
        ...

    @property
    def guest(self) -> GuestSettings:
        """What guests boot from."""
        ...

    @property
    def blocks(self) -> BlocksSettings:
        """How disks are served."""
        ...

    @property
    def images(self) -> ImagesSettings:
        """What the base image is made of."""
        ...


async def run_setup(
    settings: ProvisionSettings, mode: Mode, display: Display, clock: Clock, *, offline: bool
) -> list[StepReport]:
    """Bring everything about that a server needs here, or only look when `mode.check`; report every step."""
    pool = BlockingPool("setup", _THREADS)
    try:
        if mode.check:
            context = _make_context(settings, pool, settings.home / "setup" / "work", offline=True)
            return await run_stages(make_stages(context), mode, display, clock)
        async with open_workspace(settings.home, clock, display.begin("setup")) as work:
            context = _make_context(settings, pool, work, offline=offline)
            return await run_stages(make_stages(context), mode, display, clock)
    finally:
        pool.close()


def make_stages(context: Context) -> tuple[tuple[Step, ...], ...]:
    """Return the steps; those of one stage do not need each other."""
    kernel, daemon = GuestKernel(context), GuestDaemon(context)
    return (
        (HostPackages(context),),
        (CoreModule(context), kernel, daemon, BlockDaemonProgram(context), BaseImage(context)),
        (Initramfs(context, kernel, daemon),),
    )


def find_checkout() -> Path | None:
    """Return the source checkout that this code runs from, or None when it was installed."""
    root = Path(__file__).resolve().parents[4]
    return root if (root / "Cargo.toml").is_file() and (root / "crates").is_dir() else None


def _make_context(settings: ProvisionSettings, pool: BlockingPool, work: Path, *, offline: bool) -> Context:
    return Context(
        home=settings.home,
        work=work,
        guest=settings.guest,
        blocks=settings.blocks,
        images=settings.images,
        architecture=host_architecture(),
        distribution=_find_distribution(),
        checkout=find_checkout(),
        apt=Apt(offline=offline),
        pool=pool,
        offline=offline,
    )


def _find_distribution() -> Distribution | None:
    try:
        return host.find_distribution(host.read_release())
    except HostUnknown:
        return None
