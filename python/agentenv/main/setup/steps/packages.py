"""Step: the programs that this host needs. Installs packages that are missing; never upgrades or removes any."""

from agentenv.main.setup import host
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import SetupFailed
from agentenv.main.setup.step import Finding, Say


class HostPackages:
    """Sees to it that every command we run is there."""

    name = "host packages"

    def __init__(self, context: Context) -> None:
        self._context = context

    async def inspect(self) -> Finding:
        """Look for every command on the search path."""
        missing = host.missing_commands(self._context.architecture)
        if missing:
            return Finding(False, f"missing: {_describe(missing)}")
        count = len(host.required_commands(self._context.architecture))
        return Finding(True, f"all {count} commands are there")

    async def perform(self, say: Say) -> str:
        """Install the packages of the commands that are missing."""
        missing = host.missing_commands(self._context.architecture)
        if not missing:
            return "nothing to install"
        if self._context.distribution is None:
            raise SetupFailed(
                f"install these commands by hand, because setup does not know this system: {_describe(missing)}"
            )
        packages = sorted(set(missing.values()))
        say(f"installing {', '.join(packages)}")
        await self._context.apt.install(packages)
        still_missing = host.missing_commands(self._context.architecture)
        if still_missing:
            raise SetupFailed(f"still missing after the installation: {_describe(still_missing)}")
        return f"installed {', '.join(packages)}"


def _describe(missing: dict[str, str]) -> str:
    return ", ".join(f"{command} (package {package})" for command, package in sorted(missing.items()))
