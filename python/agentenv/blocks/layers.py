"""Whole-file work on layers: making, reading and checking them. Which files, and where, is for the caller to say."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import agentenv_core as core
from agentenv.base.aio import BlockingPool
from agentenv.base.errors import AgentEnvError
from agentenv.blocks import errors
from agentenv_core import LayerDescription, NewLayer, Verification, WrittenLayer

__all__ = ["LayerDescription", "LayerFiles", "NewLayer", "Progress", "Verification", "WrittenLayer"]

_T = TypeVar("_T")

# Hears, in a thread of the pool, how many bytes are done and how many are known to be needed; the latter may grow.
Progress = Callable[[int, int], object]

# The first that fits counts, so that a subclass stands before its base.
_TRANSLATION: tuple[tuple[type[core.CoreError], type[AgentEnvError]], ...] = (
    (core.CorruptLayer, errors.DiskDamaged),
    (core.UnsupportedLayer, errors.LayerUnsupported),
    (core.LayerTooLarge, errors.LayerTooLarge),
    (core.InvalidRequest, errors.LayerRefused),
    (core.FileMissing, errors.LayerMissing),
    (core.FileExists, errors.LayerExists),
    (core.NoSpace, errors.DiskSpaceShort),
    (core.FileFailed, errors.LayerFileFailed),
    (core.CoreError, errors.LayerWorkBroken),
)


class LayerFiles:
    """Works on layer files in the threads of a pool. Bytes of disks never pass through the interpreter.

    A new file is whole and durable when a call returns; a call that raises, is cancelled or is killed leaves none, and
    none is ever replaced. A cancelled call returns within a MiB of work. Stacks are named bottom first.
    """

    def __init__(self, pool: BlockingPool) -> None:
        self._pool = pool

    async def inspect(self, path: Path) -> LayerDescription:
        """Return what a sealed layer says about itself, checked against the length of its file."""
        return await self._run(lambda _: core.inspect(path))

    async def commit(
        self,
        image: Path,
        output: Path,
        *,
        new: NewLayer | None = None,
        hide_below: bool = False,
        progress: Progress | None = None,
    ) -> WrittenLayer:
        """Make a layer of a raw disk image, which must not change meanwhile.

        Zeros are left out, for a layer that nothing is below; `hide_below` stores them as entries that hide it.
        Equal images give equal files, however sparse they are.
        """
        work = functools.partial(core.commit, image, output, new=new, hide_below=hide_below, progress=progress)
        return await self._run(lambda token: work(token=token))

    async def flatten(
        self, layers: Sequence[Path], output: Path, *, new: NewLayer | None = None, progress: Progress | None = None
    ) -> WrittenLayer:
        """Make one layer of all layers of a disk: the file that `commit` makes of the disk's raw image."""
        work = functools.partial(core.flatten, layers, output, new=new, progress=progress)
        return await self._run(lambda token: work(token=token))

    async def merge(
        self, layers: Sequence[Path], output: Path, *, new: NewLayer | None = None, progress: Progress | None = None
    ) -> WrittenLayer:
        """Make one layer that can take the place of neighbours within a stack; what they hide stays hidden."""
        work = functools.partial(core.merge, layers, output, new=new, progress=progress)
        return await self._run(lambda token: work(token=token))

    async def seal(self, directory: Path, *, data: str, index: str, output: str, inherited_size_bytes: int = 0) -> None:
        """Seal a writable layer in place, durably, and name it `output`; nobody may have it open."""

        def work(_: core.CancellationToken) -> None:
            core.seal(directory, data=data, index=index, output=output, inherited_size_bytes=inherited_size_bytes)

        await self._run(work)

    async def cat(self, layers: Sequence[Path], output: Path, *, progress: Progress | None = None) -> int:
        """Write the disk that layers make as a raw image with holes, and return its size in bytes."""
        return await self._run(lambda token: core.cat(layers, output, progress=progress, token=token))

    async def verify(self, path: Path, *, progress: Progress | None = None) -> Verification:
        """Read every block of a layer, and check all that the format lets one check. Raises `DiskDamaged`.

        A layer without compression has no checksums: damage of its data shows in its digest alone.
        """
        return await self._run(lambda token: core.verify(path, progress=progress, token=token))

    async def digest(self, path: Path, *, progress: Progress | None = None) -> str:
        """Return `sha256:<hex>` of a file."""
        return await self._run(lambda token: core.digest(path, progress=progress, token=token))

    async def _run(self, work: Callable[[core.CancellationToken], _T]) -> _T:
        token = core.CancellationToken()
        try:
            return await self._pool.run_stoppable(functools.partial(work, token), token.cancel)
        except core.CoreError as error:
            raise _translated(error) from error


def _translated(error: core.CoreError) -> AgentEnvError:
    kind = next(ours for theirs, ours in _TRANSLATION if isinstance(error, theirs))
    return kind(str(error))
