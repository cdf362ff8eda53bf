"""Finds images by id and name in a directory of manifests. Reads only; what is damaged is logged and left out."""

from collections.abc import Iterator
from pathlib import Path

from agentenv.base import log
from agentenv.base.aio import BlockingPool
from agentenv.images import earlier, launchable, manifest
from agentenv.images.base import Image
from agentenv.images.errors import ImageDamaged, TemplateNotFound

_TAGS = frozenset({"default", "latest"})
_SHOWN_CHARACTERS = 128
_SETTLED_SECONDS = 3600
_log = log.get("images")


class DirectoryCatalogue:
    """The images under `images/` of a home, each in a directory named by its template id; their layers are beside."""

    def __init__(self, home: Path, pool: BlockingPool) -> None:
        self._home = home
        self._directory = home / "images"
        self._pool = pool

    async def resolve(self, reference: str) -> Image:
        """Return the image for a template id or name. The only tags are `default` and `latest`, which mean the same.

        Raises `TemplateNotFound` with the words of the wire contract.
        """
        name, colon, tag = reference.partition(":")
        image = await self._pool.run(self._find, name)
        if image is None:
            raise TemplateNotFound(f"template '{name[:_SHOWN_CHARACTERS]}' not found")
        if colon and tag not in _TAGS:
            shown = f"template '{name[:_SHOWN_CHARACTERS]}' has no tag '{tag[:_SHOWN_CHARACTERS]}'"
            raise TemplateNotFound(shown, code="template_tag_not_found")
        return image

    async def remove_replaced_disks(self, *, now: float) -> tuple[Path, ...]:
        """Delete the raw disks of images that have layers now, and return them; `now` is a Unix time.

        A monitor keeps what it has open. What is younger than an hour stays, for a setup under way may be about to
        convert it.
        """
        return await self._pool.run(self._remove_replaced_disks, now)

    def _find(self, name: str) -> Image | None:
        return next((image for image in self._images() if name == image.template_id or name in image.names), None)

    def _images(self) -> Iterator[Image]:
        for directory in self._directories():
            try:
                yield launchable.to_image(self._home, manifest.read(directory))
            except ImageDamaged as error:
                _log.warning("image_skipped", image=directory.name, reason=error.message)

    def _directories(self) -> tuple[Path, ...]:
        if not self._directory.is_dir():
            return ()
        names = sorted(path.name for path in self._directory.iterdir())
        return tuple(self._directory / name for name in names if manifest.TEMPLATE_ID.fullmatch(name))

    def _remove_replaced_disks(self, now: float) -> tuple[Path, ...]:
        removed = []
        for directory in self._directories():
            try:
                launchable.to_image(self._home, manifest.read(directory))
            except ImageDamaged:
                # The disk may be all that is left of the image: setup repairs that, not a sweep.
                continue
            for disk in directory.glob(earlier.DISKS):
                if now - (directory / manifest.FILE_NAME).stat().st_mtime > _SETTLED_SECONDS:
                    disk.unlink()
                    removed.append(disk)
        return tuple(removed)

    async def list(self) -> list[Image]:
        """Return all images, by name."""
        images = await self._pool.run(lambda: tuple(self._images()))
        return sorted(images, key=lambda image: (image.names, image.template_id))
