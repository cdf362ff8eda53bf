"""Step: the block daemon, from a configured file or built from this checkout. Kept under `boot/` by its inputs."""

from agentenv.base import files
from agentenv.base.units import format_bytes
from agentenv.blocks import program
from agentenv.main.setup import cargo
from agentenv.main.setup.context import Context
from agentenv.main.setup.errors import SetupFailed
from agentenv.main.setup.step import Finding, Say

_CRATES = ("aenv-blockd", "aenv-layers", "aenv-sources")


class BlockDaemonProgram:
    """Keeps the program that serves every disk."""

    name = "block daemon"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._directory = context.home / "boot"

    async def inspect(self) -> Finding:
        """Look for a program made from the same file or the same sources, and in use."""
        inputs = self._inputs()
        current = program.current(self._directory)
        if inputs is not None and current == program.place(self._directory, inputs):
            return Finding(True, current.name)
        return Finding(False, "no block daemon is prepared" if current is None else f"{current.name} is not current")

    async def perform(self, say: Say) -> str:
        """Build the program, or take the configured one, keep a copy, and make that the one that servers start."""
        inputs = self._inputs()
        if inputs is None:
            raise SetupFailed("this is no source checkout, so blocks.binary_path must name the block daemon")
        configured = self._context.blocks.binary_path
        binary = configured or await cargo.build(self._context, _CRATES[0], "release", say)
        if not binary.is_file():
            raise SetupFailed(f"blocks.binary_path {binary} is no file")
        target = program.place(self._directory, inputs)
        content = await self._context.pool.run(binary.read_bytes)
        await self._context.pool.run(lambda: files.write_atomically(target, content, mode=0o755))
        program.use(self._directory, target)
        return f"{target.name}, {format_bytes(len(content))}"

    def _inputs(self) -> str | None:
        return cargo.inputs(self._context, self._context.blocks.binary_path, _CRATES)
