"""An object store in a bucket of an S3-compatible service, through obstore; cells by conditional writes.

Needs of the service: read-after-write consistency, and If-Match and If-None-Match on PUT unless told otherwise.
"""

import hashlib
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from agentenv.base import aio
from agentenv.base.aio import BlockingPool
from agentenv.objects import credentials, names
from agentenv.objects.base import CELL_LIMIT_BYTES, Cell, ObjectAddress, Version
from agentenv.objects.cache import BlobCache
from agentenv.objects.credentials import Credentials
from agentenv.objects.errors import CellChanged, CellDamaged, StoreUnavailable, StoreUnfit, translated
from agentenv.objects.node_files import NodeFiles
from agentenv.objects.settings import ObjectsSettings

if TYPE_CHECKING:
    from obstore.store import S3Config  # exists for type checkers only

_T = TypeVar("_T")
_THREADS = 4
_NONCE_BYTES = 32
_PART_BYTES = 16 * 1024 * 1024
_PARTS_AT_ONCE = 4
_READS_AT_ONCE = 16
_MIB = 1024 * 1024


class BucketStore:
    """Keys: `layers/sha256/<hex>`, `aside/sha256/<hex>`, `<kind>/<key>`, all below the prefix.

    A cell is 32 random characters and its content: so equal contents have different entity tags, and a writer whose
    answer was lost recognises its own write.
    """

    def __init__(self, settings: ObjectsSettings, local: Path) -> None:
        self._settings = settings
        self._own = NodeFiles(local)
        self._cache = BlobCache(local / "cache", settings.cache_mib * _MIB)
        self._prefix = f"{settings.prefix}/" if settings.prefix else ""
        self._pool = BlockingPool("objects", _THREADS)
        self._opened: S3Store | None = None

    async def start(self) -> None:
        """Make the local directories, open the bucket, prove its promises. Raises `StoreUnfit`."""
        await self._run("making local directories", self._own.make)
        await self._run("making local directories", self._cache.make)
        self._opened = _open(self._settings)
        if self._settings.conditional_writes:
            await self._prove_conditions()

    async def _prove_conditions(self) -> None:
        key = f"probe-{secrets.token_hex(8)}"
        try:
            first = await self.write_cell("probes", key, b"1", expected=None)
            await self.write_cell("probes", key, b"2", expected=first)
            for stale in (None, first):
                try:
                    await self.write_cell("probes", key, b"3", expected=stale)
                except CellChanged:
                    continue
                raise StoreUnfit(
                    f"bucket {self._settings.bucket} ignores conditions on writes: use another service, or one node "
                    "with `objects.conditional_writes = false`"
                )
        finally:
            await self.forget_cell("probes", key)

    async def close(self) -> None:
        """End the threads."""
        self._opened = None
        self._pool.close()

    async def workspace(self, name: str) -> Path:
        """Return an empty local directory."""
        return await self._run(f"making workspace {name}", self._own.make_workspace, name)

    async def drop_workspace(self, name: str) -> None:
        """Remove a workspace, if there is one."""
        await self._run(f"removing workspace {name}", self._own.drop_workspace, name)

    async def workspaces(self) -> list[str]:
        """Return the names of this node's workspaces."""
        return await self._run("listing workspaces", self._own.workspaces)

    async def put_blob(self, digest: str, source: Path) -> None:
        """Upload a file unless it is there in its size, and keep it as a local copy."""
        size = await self._run(f"reading {source}", lambda: source.stat().st_size)
        if await self.blob_size(digest) != size:
            with _translated(f"storing {digest}"):
                await obstore.put_async(
                    self._store, self._blob(digest), source, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
                )
        await self._run(f"keeping {digest}", lambda: shutil.move(source, self._cache.place(digest)))

    async def blob_size(self, digest: str) -> int | None:
        """Return the size of a blob, or None."""
        with _translated(f"looking for {digest}"):
            try:
                found = await obstore.head_async(self._store, self._blob(digest))
            except FileNotFoundError:
                return None
            return int(found["size"])

    async def locate_blob(self, digest: str) -> Path | ObjectAddress:
        """Return the local copy, if there is one, else the address of the object."""
        copy = await self._run(f"looking for {digest}", self._cache.find, digest)
        if copy is not None:
            return copy
        settings = self._settings
        return ObjectAddress(settings.endpoint, settings.bucket, self._blob(digest), settings.credentials_path)

    async def local_blob(self, digest: str) -> Path | None:
        """Return the local copy, downloaded now if need be."""
        copy = await self._run(f"looking for {digest}", self._cache.find, digest)
        return copy or await self._download(digest)

    async def _download(self, digest: str) -> Path | None:
        temporary = self._own.new_temporary()
        hasher = hashlib.sha256()
        try:
            with temporary.open("xb") as file:
                async for part in self._parts(digest):

                    def take(part: bytes = part) -> None:
                        file.write(part)
                        hasher.update(part)

                    await self._run(f"writing a copy of {digest}", take)
            if f"sha256:{hasher.hexdigest()}" != digest:
                raise StoreUnavailable(f"the object store returned other content than {digest}")
            return await self._run(f"keeping {digest}", lambda: temporary.replace(self._cache.place(digest)))
        except FileNotFoundError:
            return None
        finally:
            temporary.unlink(missing_ok=True)

    async def _parts(self, digest: str) -> AsyncIterator[bytes]:
        """Yield a blob in parts. Raises `FileNotFoundError` when there is none."""
        try:
            answer = await obstore.get_async(self._store, self._blob(digest))
            async for part in answer.stream(min_chunk_size=_PART_BYTES):
                yield bytes(part)
        except BaseError as error:
            raise StoreUnavailable(f"reading {digest} failed: {_first_line(error)}") from error

    async def trim(self, keep: Collection[str]) -> list[str]:
        """Remove the least recently used copies beyond the limit."""
        return await self._run("trimming local copies", self._cache.trim, keep)

    async def digest_blob(self, digest: str) -> str | None:
        """Read a whole object and return the digest of its content."""
        hasher = hashlib.sha256()
        try:
            async for part in self._parts(digest):
                await self._pool.run(hasher.update, part)
        except FileNotFoundError:
            return None
        return f"sha256:{hasher.hexdigest()}"

    async def blobs(self) -> Mapping[str, int]:
        """Return all blobs with their sizes."""
        return await self._list_blobs("layers/sha256/")

    async def set_aside(self, digest: str) -> None:
        """Copy a blob out of the way, within the service, and delete it."""
        await self._move(self._blob(digest), self._put_aside(digest))

    async def restore(self, digest: str) -> bool:
        """Copy a blob back."""
        return await self._move(self._put_aside(digest), self._blob(digest))

    async def _move(self, source: str, target: str) -> bool:
        with _translated(f"moving {source}"):
            try:
                await obstore.copy_async(self._store, source, target)
            except FileNotFoundError:
                return False
            await obstore.delete_async(self._store, source)
        return True

    async def aside(self) -> Mapping[str, int]:
        """Return what is set aside with its sizes."""
        return await self._list_blobs("aside/sha256/")

    async def purge(self, digest: str) -> None:
        """Remove what is set aside."""
        await self._delete(self._put_aside(digest))

    async def read_cell(self, kind: str, key: str) -> Cell | None:
        """Return a cell, or None."""
        found = await self._read(kind, key)
        return None if found is None else Cell(found.content[_NONCE_BYTES:], found.version)

    async def _read(self, kind: str, key: str) -> Cell | None:
        with _translated(f"reading {kind}/{key}"):
            try:
                answer = await obstore.get_async(self._store, self._cell(kind, key))
            except FileNotFoundError:
                return None
            size, version = answer.meta["size"], answer.meta["e_tag"]
            if not _NONCE_BYTES <= size <= CELL_LIMIT_BYTES + _NONCE_BYTES or version is None:
                raise CellDamaged(f"{kind}/{key} in bucket {self._settings.bucket} is not one of our documents")
            return Cell(bytes(await answer.bytes_async()), Version(version))

    async def read_cells(self, kind: str, hints: Mapping[str, Version]) -> Mapping[str, Cell]:
        """Return many cells."""
        found: dict[str, Cell] = {}

        async def one(key: str) -> None:
            cell = await self.read_cell(kind, key)
            found.update({} if cell is None else {key: cell})

        await aio.for_each(hints, one, at_once=_READS_AT_ONCE)
        return found

    async def write_cell(self, kind: str, key: str, content: bytes, *, expected: Version | None) -> Version:
        """Write a cell if it has the expected version."""
        stored = secrets.token_hex(_NONCE_BYTES // 2).encode() + content
        with _translated(f"writing {kind}/{key}"):
            try:
                if not self._settings.conditional_writes:
                    await self._compare(kind, key, expected)
                    written = await obstore.put_async(self._store, self._cell(kind, key), stored)
                elif expected is None:
                    written = await obstore.put_async(self._store, self._cell(kind, key), stored, mode="create")
                else:
                    written = await obstore.put_async(
                        self._store, self._cell(kind, key), stored, mode={"e_tag": expected}
                    )
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                return await self._recognise(kind, key, stored)
        return Version(str(written["e_tag"]))

    async def _compare(self, kind: str, key: str, expected: Version | None) -> None:
        found = await self._read(kind, key)
        if (found.version if found else None) != expected:
            raise CellChanged(f"{kind}/{key} has changed")

    async def _recognise(self, kind: str, key: str, stored: bytes) -> Version:
        """A request that was made again after a lost answer is refused because the first one was obeyed."""
        found = await self._read(kind, key)
        if found is None or found.content != stored:
            raise CellChanged(f"{kind}/{key} has changed")
        return found.version

    async def forget_cell(self, kind: str, key: str) -> None:
        """Remove a cell."""
        await self._delete(self._cell(kind, key))

    async def cells(self, kind: str) -> Mapping[str, Version]:
        """Return all keys of a kind with their versions."""
        return {key: Version(tag) async for key, _, tag in self._list(f"{kind}/")}

    async def sweep(self) -> list[str]:
        """Remove this node's temporary files."""
        return await self._run("removing temporary files", self._own.sweep)

    async def _list_blobs(self, prefix: str) -> dict[str, int]:
        found = {names.digest_of(name): size async for name, size, _ in self._list(prefix)}
        return {digest: size for digest, size in found.items() if digest is not None}

    async def _list(self, prefix: str) -> AsyncIterator[tuple[str, int, str]]:
        whole = self._prefix + prefix
        with _translated(f"listing {whole}"):
            async for page in obstore.list(self._store, whole, chunk_size=1000):
                for found in page:
                    yield found["path"].removeprefix(whole), found["size"], found["e_tag"] or ""

    async def _delete(self, key: str) -> None:
        with _translated(f"deleting {key}"):
            try:
                await obstore.delete_async(self._store, key)
            except FileNotFoundError:
                return

    @property
    def _store(self) -> S3Store:
        assert self._opened is not None, "the store is not open"
        return self._opened

    def _blob(self, digest: str) -> str:
        return f"{self._prefix}layers/sha256/{names.hexadecimal(digest)}"

    def _put_aside(self, digest: str) -> str:
        return f"{self._prefix}aside/sha256/{names.hexadecimal(digest)}"

    def _cell(self, kind: str, key: str) -> str:
        names.check_cell(kind, key)
        return f"{self._prefix}{kind}/{key}"

    async def _run(self, what: str, work: Callable[..., _T], *arguments: object) -> _T:
        def body() -> _T:
            with translated(what):
                return work(*arguments)

        return await self._pool.run(body)


def _open(settings: ObjectsSettings) -> S3Store:
    if not settings.endpoint or not settings.bucket:
        raise StoreUnfit("`objects.endpoint` and `objects.bucket` must be set to use an object store")
    key = credentials.read(settings.credentials_path)
    timeout = timedelta(seconds=settings.timeout_seconds)
    try:
        return S3Store(
            settings.bucket,
            endpoint=settings.endpoint,
            region=key.region,
            config=_to_config(key),
            client_options={"allow_http": settings.endpoint.startswith("http://"), "timeout": timeout},
            retry_config={"max_retries": settings.max_retries, "retry_timeout": timeout},
        )
    except (BaseError, ValueError) as error:
        raise StoreUnfit(f"the object store cannot be opened: {_first_line(error)}") from None


def _to_config(key: Credentials) -> "S3Config":
    config: S3Config = {
        "access_key_id": key.access_key_id,
        "secret_access_key": key.secret_access_key.get_secret_value(),
    }
    if key.session_token is not None:
        config["session_token"] = key.session_token.get_secret_value()
    return config


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn what obstore raises while we do `what` into our errors."""
    try:
        yield
    except (BaseError, OSError) as error:
        raise StoreUnavailable(f"{what} failed: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    # The rest repeats the request and the service's XML.
    return str(error).partition("\n")[0][:300]
