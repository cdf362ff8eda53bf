"""What a node keeps for itself beside a store: workspaces of captures, and temporary files. Blocking."""

import secrets
import shutil
from pathlib import Path

from agentenv.objects import names


class NodeFiles:
    """The directories `incoming` and `temporary` below `directory`, which no other node uses."""

    def __init__(self, directory: Path) -> None:
        self._incoming = directory / "incoming"
        self._temporary = directory / "temporary"

    def make(self) -> None:
        """Make the directories."""
        for path in (self._incoming, self._temporary):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def temporary(self) -> Path:
        """Where temporary files are."""
        return self._temporary

    def new_temporary(self) -> Path:
        """Return a path that nobody uses."""
        return self._temporary / secrets.token_hex(16)

    def sweep(self) -> list[str]:
        """Remove all temporary files; return their names."""
        left = sorted(self._temporary.iterdir())
        for path in left:
            path.unlink(missing_ok=True)
        return [path.name for path in left]

    def make_workspace(self, name: str) -> Path:
        """Return an empty directory; what was in one of that name is gone."""
        self.drop_workspace(name)
        path = self._workspace(name)
        path.mkdir()
        return path

    def drop_workspace(self, name: str) -> None:
        """Remove a workspace, if there is one."""
        path = self._workspace(name)
        if path.exists():
            shutil.rmtree(path)

    def workspaces(self) -> list[str]:
        """Return the names of all workspaces."""
        return sorted(path.name for path in self._incoming.iterdir())

    def _workspace(self, name: str) -> Path:
        names.check_cell("workspace", name)
        return self._incoming / name
