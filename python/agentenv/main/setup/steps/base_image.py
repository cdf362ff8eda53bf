"""Step: the default base image in the catalogue."""

from pathlib import Path

from agentenv.base.units import format_bytes
from agentenv.blocks.base import FileLayer
from agentenv.blocks.layers import LayerFiles
from agentenv.images import builder
from agentenv.images.debian import Recipe
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import NeedsNetwork, SetupFailed
from agentenv.main.setup.step import Finding, Say


class BaseImage:
    """Keeps the image called `base`."""

    name = "base image"

    def __init__(self, context: Context) -> None:
        self._context = context

    async def inspect(self) -> Finding:
        """Look for an image called `base` that was made from the same recipe, with the defaults of now."""
        found = builder.find_base(self._context.home)
        if found is None and self._can_be_converted():
            return Finding(False, "the base image has the form of an earlier version, and is converted")
        if found is None:
            return Finding(False, "there is no base image")
        _, manifest = found
        if manifest.inputs != builder.base_inputs(self._suite(), self._context.images):
            return Finding(False, f"{manifest.template_id} was made from another recipe")
        if not builder.has_defaults(manifest, self._context.images):
            return Finding(False, f"{manifest.template_id} has other defaults than the settings")
        return Finding(True, f"{manifest.template_id} ({manifest.built_from.partition(':')[0]})")

    async def perform(self, say: Say) -> str:
        """Build the image; when only the settings' defaults differ, write those."""
        found = builder.find_base(self._context.home)
        settings, suite = self._context.images, self._suite()
        if found is not None and found[1].inputs == builder.base_inputs(suite, settings):
            directory, manifest = found
            if not builder.has_defaults(manifest, settings):
                builder.update_defaults(directory, manifest, settings)
                return f"{manifest.template_id}: {settings.default_vcpus} vCPUs, {settings.default_memory_mib} MiB"
        if found is None and self._can_be_converted():
            return await self._convert(say)
        return await self._build(suite, say)

    def _can_be_converted(self) -> bool:
        return builder.can_be_converted(self._context.home, self._suite(), self._context.images)

    async def _convert(self, say: Say) -> str:
        context = self._context
        say("making a layer of its disk")
        image = await builder.convert_base(context.home, self._make_room(), context.images, LayerFiles(context.pool))
        return f"{image.template_id}, converted"

    def _make_room(self) -> Path:
        work = self._context.work / "base-image"
        work.mkdir()
        return work

    async def _build(self, suite: str, say: Say) -> str:
        context = self._context
        if context.distribution is None or not suite:
            raise SetupFailed("the base image cannot be built on a system whose package sources setup does not know")
        if context.offline:
            raise NeedsNetwork("the base image is built from downloaded packages; run without --offline once")
        say(f"installing a minimal {suite}")
        recipe = Recipe(
            suite=suite,
            sources=await context.apt.sources(context.distribution, suite),
            packages=context.images.base_packages,
            apt_configuration=await context.apt.configuration(),
        )
        image = await builder.build_base(
            context.home,
            self._make_room(),
            recipe,
            context.images,
            pool=context.pool,
            layer_files=LayerFiles(context.pool),
        )
        size = sum(layer.path.stat().st_size for layer in image.disk.layers if isinstance(layer, FileLayer))
        return f"{image.template_id} ({suite}), {format_bytes(size)}"

    def _suite(self) -> str:
        distribution = self._context.distribution
        return self._context.images.base_suite or (distribution.codename if distribution else "")
