"""The host's package manager: what it knows, what it may install, what it fetches. Never removes anything."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from agentenv.base import process
from agentenv.base.process import CommandFailed
from agentenv.images.debian import PackageSource
from agentenv.main.setup.errors import NeedsNetwork, SetupFailed
from agentenv.main.setup.host import Distribution

_LOCK_SECONDS = 300
_QUERY_SECONDS = 60
_DOWNLOAD_SECONDS = 900
_INSTALL_SECONDS = 1800
_PASSED_ON = re.compile(r"Acquire::(https?|ftp|tor)::|Acquire::(Check-Valid-Until|Check-Date|Retries|ForceIPv[46]) ")
# Backports would change what a release is.
_POCKETS = frozenset({"", "updates", "security"})
_INDEX_FORMAT = "$(ORIGIN)\t$(CODENAME)\t$(RELEASE)\t$(COMPONENT)\t$(REPO_URI)"


class Apt:
    """Speaks to apt and dpkg of this host."""

    def __init__(self, *, offline: bool) -> None:
        self._offline = offline
        self._is_updated = False

    async def install(self, packages: Sequence[str]) -> None:
        """Install `packages` without their recommendations. Raises `NeedsNetwork` or `SetupFailed`."""
        self._require_network(f"the packages {', '.join(packages)} are not installed")
        command = ("apt-get", "-y", "-q", "--no-install-recommends", "install", *packages)
        # A run that was killed leaves packages unpacked but not configured, and apt refuses to go on from there.
        await self._change("dpkg", "--configure", "-a")
        try:
            await self._change(*command)
        except SetupFailed:
            # The lists were missing or out of date: once more with fresh ones.
            if self._is_updated:
                raise
            await self.update()
            await self._change(*command)

    async def update(self) -> None:
        """Fetch the package lists, once per run of setup."""
        if not self._is_updated:
            self._require_network("the package lists are missing")
            await self._change("apt-get", "-q", "update")
            self._is_updated = True

    async def search(self, pattern: str) -> list[str]:
        """Return the names of known packages that match the extended regular expression `pattern`."""
        result = await process.run(["apt-cache", "search", "--names-only", pattern], timeout_seconds=_QUERY_SECONDS)
        return [line.split(" ", 1)[0] for line in result.stdout.decode(errors="replace").splitlines() if line]

    async def download(self, package: str, directory: Path) -> Path:
        """Fetch the newest version of `package` into the empty `directory`, verified by apt, and return its file."""
        self._require_network(f"the package {package} is not here")
        directory.mkdir()
        # Apt would drop to a user that may not write to our directory, and complain.
        command = ("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package)
        await self._change(*command, cwd=directory, timeout_seconds=_DOWNLOAD_SECONDS)
        found = list(directory.glob("*.deb"))
        if len(found) != 1:
            raise SetupFailed(f"apt-get downloaded {len(found)} files for {package}")
        return found[0]

    async def sources(self, distribution: Distribution, suite: str) -> tuple[PackageSource, ...]:
        """Return where this host's packages come from, rewritten for the release `suite` of the same distribution."""
        found = await self._read_sources(distribution, suite)
        if not found:
            await self.update()
            found = await self._read_sources(distribution, suite)
        if not found:
            raise SetupFailed(f"apt has no package source of {distribution.label}; add one to /etc/apt")
        return found

    async def _read_sources(self, distribution: Distribution, suite: str) -> tuple[PackageSource, ...]:
        command = ["apt-get", "indextargets", "--format", _INDEX_FORMAT, "Created-By: Packages"]
        result = await process.run(command, timeout_seconds=_QUERY_SECONDS)
        return parse_sources(result.stdout.decode(errors="replace"), distribution, suite)

    async def configuration(self) -> str:
        """Return those settings of apt by which this host reaches its package sources."""
        command = ["apt-config", "dump", "--no-empty", "--format", '%F "%v";%n', "Acquire"]
        result = await process.run(command, timeout_seconds=_QUERY_SECONDS)
        lines = result.stdout.decode(errors="replace").splitlines()
        return "".join(f"{line}\n" for line in lines if _PASSED_ON.match(line))

    def _require_network(self, reason: str) -> None:
        if self._offline:
            raise NeedsNetwork(f"{reason}; run without --offline once")

    async def _change(self, *command: str, cwd: Path | None = None, timeout_seconds: float = _INSTALL_SECONDS) -> None:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        words = [*command]
        if command[0] == "apt-get":
            words[1:1] = ["-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}"]
        try:
            await process.run(words, environment=environment, cwd=cwd, timeout_seconds=timeout_seconds)
        except CommandFailed as error:
            raise SetupFailed(error.message) from error


def parse_sources(listing: str, distribution: Distribution, suite: str) -> tuple[PackageSource, ...]:
    """Return the sources of `distribution` in apt's list of index files, for `suite` in place of the host's release."""
    components: dict[tuple[str, str], list[str]] = {}
    for line in listing.splitlines():
        fields = line.split("\t")
        if len(fields) != 5:
            continue
        origin, codename, release, component, uri = fields
        if origin != distribution.origin or component not in distribution.components:
            continue
        # Debian names its pockets in the code name too, Ubuntu only in the release; a source list may say `stable`.
        pocket = release.partition("-")[2]
        if codename.partition("-")[0] == distribution.codename and pocket in _POCKETS:
            known = components.setdefault((uri, f"{suite}-{pocket}" if pocket else suite), [])
            if component not in known:
                known.append(component)
    keyring = distribution.keyring if Path(distribution.keyring).exists() else ""
    return tuple(
        PackageSource(uri, release, tuple(sorted(names)), keyring) for (uri, release), names in components.items()
    )
