"""Step: the default base image in the catalogue."""

from agentenv.base.units import format_bytes
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
        self._images = context.home / "images"

    async def inspect(self) -> Finding:
        """Look for an image called `base` that was made from the same recipe, with the defaults of now."""
        found = builder.find_base(self._images)
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
        found = builder.find_base(self._images)
        settings, suite = self._context.images, self._suite()
        if found is not None and found[1].inputs == builder.base_inputs(suite, settings):
            directory, manifest = found
            if not builder.has_defaults(manifest, settings):
                builder.update_defaults(directory, manifest, settings)
                return f"{manifest.template_id}: {settings.default_vcpus} vCPUs, {settings.default_memory_mib} MiB"
        return await self._build(suite, say)

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
        work = context.work / "base-image"
        work.mkdir()
        image = await builder.build_base(self._images, work, recipe, context.images, context.pool)
        allocated = image.disk.stat().st_blocks * 512
        return f"{image.template_id} ({suite}), {format_bytes(allocated)} on disk"

    def _suite(self) -> str:
        distribution = self._context.distribution
        return self._context.images.base_suite or (distribution.codename if distribution else "")
