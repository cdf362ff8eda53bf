# What the Rust module `agentenv_core` offers: work on whole layer files, outside of the interpreter.
# Built from crates/aenv-python; `stubtest` holds this file against it. Calls release the interpreter while they work.
# A progress function hears `(done_bytes, total_bytes)` at most ten times a second and once at the end; the total may
# grow. What it raises ends the call. A token is looked at for every MiB. A new file appears whole and durable, or not
# at all, and never replaces one.

import os
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, final

__all__ = [
    "CancellationToken",
    "Cancelled",
    "CoreError",
    "CorruptLayer",
    "FileExists",
    "FileFailed",
    "FileMissing",
    "InternalError",
    "InvalidRequest",
    "LayerDescription",
    "LayerTooLarge",
    "MemoryFailed",
    "MemoryLayer",
    "MemoryPages",
    "NewLayer",
    "NoSpace",
    "ProcessEnded",
    "UnsupportedLayer",
    "Verification",
    "WrittenLayer",
    "cat",
    "commit",
    "digest",
    "flatten",
    "inspect",
    "make_durable",
    "merge",
    "scan_memory",
    "seal",
    "verify",
    "write_memory",
]

_Path: TypeAlias = str | os.PathLike[str]
_Progress: TypeAlias = Callable[[int, int], object]

class CoreError(Exception): ...
class CorruptLayer(CoreError): ...
class UnsupportedLayer(CoreError): ...
class LayerTooLarge(CoreError): ...
class InvalidRequest(CoreError): ...
class FileFailed(CoreError): ...
class FileMissing(FileFailed): ...
class FileExists(FileFailed): ...
class NoSpace(FileFailed): ...
class MemoryFailed(CoreError): ...
class ProcessEnded(MemoryFailed): ...
class Cancelled(CoreError): ...
class InternalError(CoreError): ...

@final
class CancellationToken:
    def __new__(cls) -> CancellationToken: ...
    def cancel(self) -> None: ...
    @property
    def is_cancelled(self) -> bool: ...

@final
class NewLayer:
    def __new__(
        cls,
        *,
        layer_id: str | None = None,
        parent_id: str | None = None,
        tag: bytes = ...,
        compression: Literal["lz4", "zstd"] | None = None,
        archive: bool = False,
    ) -> NewLayer: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class LayerDescription:
    @property
    def file_bytes(self) -> int: ...
    @property
    def is_archive(self) -> bool: ...
    @property
    def compression(self) -> Literal["lz4", "zstd"] | None: ...
    @property
    def block_bytes(self) -> int | None: ...
    @property
    def has_checksums(self) -> bool: ...
    @property
    def layer_id(self) -> str | None: ...
    @property
    def parent_id(self) -> str | None: ...
    @property
    def tag(self) -> bytes: ...
    @property
    def virtual_size_bytes(self) -> int | None: ...
    @property
    def layer_bytes(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def data_bytes(self) -> int: ...
    @property
    def zeroed_bytes(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class WrittenLayer:
    @property
    def digest(self) -> str: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def layer_bytes(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def data_bytes(self) -> int: ...
    @property
    def virtual_size_bytes(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class Verification:
    @property
    def digest(self) -> str: ...
    @property
    def description(self) -> LayerDescription: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

def inspect(path: _Path) -> LayerDescription: ...
def commit(
    image: _Path,
    output: _Path,
    *,
    new: NewLayer | None = None,
    hide_below: bool = False,
    progress: _Progress | None = None,
    token: CancellationToken | None = None,
) -> WrittenLayer: ...
def flatten(
    layers: Sequence[_Path],
    output: _Path,
    *,
    new: NewLayer | None = None,
    progress: _Progress | None = None,
    token: CancellationToken | None = None,
) -> WrittenLayer: ...
def merge(
    layers: Sequence[_Path],
    output: _Path,
    *,
    new: NewLayer | None = None,
    progress: _Progress | None = None,
    token: CancellationToken | None = None,
) -> WrittenLayer: ...
def seal(
    directory: _Path, *, data: str, index: str, output: str, inherited_size_bytes: int = 0
) -> LayerDescription: ...
def cat(
    layers: Sequence[_Path],
    output: _Path,
    *,
    progress: _Progress | None = None,
    token: CancellationToken | None = None,
) -> int: ...
def verify(
    path: _Path, *, progress: _Progress | None = None, token: CancellationToken | None = None
) -> Verification: ...
def digest(path: _Path, *, progress: _Progress | None = None, token: CancellationToken | None = None) -> str: ...

@final
class MemoryPages:
    @staticmethod
    def whole(size_bytes: int) -> MemoryPages: ...
    @property
    def count(self) -> int: ...

@final
class MemoryLayer:
    @property
    def file_bytes(self) -> int: ...
    @property
    def data_bytes(self) -> int: ...
    @property
    def digest(self) -> str | None: ...

def scan_memory(
    pid: int,
    start_ticks: int,
    address: int,
    size_bytes: int,
    *,
    changes: Literal["since_start", "since_start_and_track", "since_last_scan"],
) -> MemoryPages: ...
def write_memory(
    pid: int,
    start_ticks: int,
    address: int,
    size_bytes: int,
    pages: MemoryPages,
    output: _Path,
    *,
    below: Sequence[_Path] | None = None,
    compare: bool = False,
    layer_id: str | None = None,
    parent_id: str | None = None,
    hashed: bool = True,
    token: CancellationToken | None = None,
) -> MemoryLayer: ...
def make_durable(path: _Path, *, hashed: bool = True, token: CancellationToken | None = None) -> str | None: ...
