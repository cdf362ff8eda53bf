"""What all steps of a setup share: settings, places, and the hands that do the work."""

from dataclasses import dataclass
from pathlib import Path

from agentenv.base.aio import BlockingPool
from agentenv.blocks.settings import BlocksSettings
from agentenv.guest.architecture import Architecture
from agentenv.guest.settings import GuestSettings
from agentenv.images.settings import ImagesSettings
from agentenv.main.setup.apt import Apt
from agentenv.main.setup.host import Distribution


@dataclass(frozen=True, slots=True)
class Context:
    """What steps work with. `work` is scratch room on the home directory's file system.

    `distribution` is None on a host that is not known; `checkout` is None when this is not a source checkout.
    """

    home: Path
    work: Path
    guest: GuestSettings
    blocks: BlocksSettings
    images: ImagesSettings
    architecture: Architecture
    distribution: Distribution | None
    checkout: Path | None
    apt: Apt
    pool: BlockingPool
    offline: bool
