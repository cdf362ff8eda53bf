"""The seam of `images`: what can be launched, and who finds it by name."""

from dataclasses import dataclass
from typing import Protocol

from agentenv.base.ids import TemplateId
from agentenv.blocks.base import Stack


@dataclass(frozen=True, slots=True)
class Image:
    """A root file system that a sandbox can start from, with the defaults that come with it.

    `disk` is what is below the writable layer. `names` are the template names it is known by.
    """

    template_id: TemplateId
    names: tuple[str, ...]
    disk: Stack
    vcpus: int
    memory_mib: int
    environment: dict[str, str]
    default_user: str
    default_workdir: str | None

    @property
    def disk_size_bytes(self) -> int:
        """What a guest sees, unless its disk is made larger."""
        return self.disk.size_bytes


class Catalogue(Protocol):
    """Finds images by what clients call them."""

    async def resolve(self, reference: str) -> Image:
        """Return the image for a template id or name, with or without `:tag`. Raises `TemplateNotFound`."""
        ...

    async def list(self) -> list[Image]:
        """Return all images, by name."""
        ...
