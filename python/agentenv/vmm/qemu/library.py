"""The preload library: where it is, a copy that monitors can read, and whether it works with a QEMU."""

import asyncio
import hashlib
import tempfile
from pathlib import Path

from agentenv.base import log, process
from agentenv.base.errors import AgentEnvError
from agentenv.base.files import write_atomically
from agentenv.vmm.qemu.binary import QemuBinary
from agentenv.vmm.qemu.command_line import PRELOAD_VARIABLE

_log = log.get("vmm")
# Built by scripts/build-core, beside the package like the Rust half itself.
BUILT = Path(__file__).parents[3] / "aenv_preload.so"
_PROBE_SECONDS = 10


async def provide(directory: Path, binary: QemuBinary) -> Path | None:
    """Return a copy of the library in `directory`, or None when there is none that works with this QEMU."""
    if not BUILT.is_file():
        _log.warning("preload_library_missing", path=str(BUILT))
        return None
    library = await asyncio.to_thread(_install, directory)
    if await _works(library, binary):
        return library
    _log.warning("preload_library_unfit", path=str(library), qemu=binary.version_text)
    return None


def _install(directory: Path) -> Path:
    # Users without rights read it, and may not reach the place where it was built. A monitor that has an older one
    # loaded keeps it, whatever happens to the name.
    content = BUILT.read_bytes()
    library = directory / f"preload-{hashlib.sha256(content).hexdigest()[:16]}.so"
    if not library.is_file() or library.stat().st_size != len(content):
        write_atomically(library, content, mode=0o755)
    for older in directory.glob("preload-*.so"):
        if older != library:
            older.unlink(missing_ok=True)
    return library


async def _works(library: Path, binary: QemuBinary) -> bool:
    """Load it into the program once: its socket appears when everything else has worked."""
    with tempfile.TemporaryDirectory(prefix="aenv-") as room:
        socket = Path(room) / "probe.sock"
        words: list[str | Path] = [
            "env",
            f"LD_PRELOAD={library}",
            f"{PRELOAD_VARIABLE}={socket}",
            binary.path,
            "--version",
        ]
        try:
            await process.run(words, timeout_seconds=_PROBE_SECONDS)
        except AgentEnvError:
            return False
        return socket.is_socket()
