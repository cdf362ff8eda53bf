"""What a sandbox starts from: an image or a snapshot, turned into what `runtime` launches and what records remember."""

import hashlib
import json
from dataclasses import dataclass

from agentenv.base.errors import Corrupt
from agentenv.base.ids import SandboxId, TemplateId
from agentenv.base.units import MIB
from agentenv.guest.base import ENVD_VERSION
from agentenv.images.base import Image
from agentenv.images.errors import TemplateNotFound
from agentenv.orchestrator.fleet import Fleet
from agentenv.orchestrator.record import Basis
from agentenv.runtime.base import Boot, Origin, Restore
from agentenv.snapshots.base import BootFacts, FileRecord, SnapshotKind, SnapshotManifest
from agentenv.snapshots.errors import NameInvalid, SnapshotNotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a sandbox starts from, resolved."""

    template_id: TemplateId
    template_name: str | None
    vcpus: int
    memory_mib: int
    disk_size_bytes: int
    boot: BootFacts
    basis: Basis
    origin: Origin
    envd_version: str


async def resolve(fleet: Fleet, reference: str) -> Image | SnapshotManifest:
    """Return the image or the snapshot that a client means. Raises `TemplateNotFound`.

    Images come first; no snapshot can take the name of one.
    """
    try:
        return await fleet.catalogue.resolve(reference)
    except TemplateNotFound as unknown:
        try:
            manifest = await fleet.repository.get(await fleet.repository.resolve(reference))
        except (SnapshotNotFound, NameInvalid):
            raise unknown from None
        if manifest.kind is not SnapshotKind.SNAPSHOT:
            raise unknown from None
        return manifest


async def prepare(fleet: Fleet, found: Image | SnapshotManifest, holder: SandboxId) -> Source:
    """Return a source; the files of a snapshot are kept for `holder` from here on."""
    if isinstance(found, Image):
        return of_image(found)
    name = found.names[0].removesuffix(":default") if found.names else None
    return await of_snapshot(
        fleet, found, holder, template_id=TemplateId(found.snapshot_id), template_name=name, with_memory=True
    )


def of_image(image: Image) -> Source:
    """Return an image as a source."""
    return Source(
        template_id=image.template_id,
        template_name=image.names[0] if image.names else None,
        vcpus=image.vcpus,
        memory_mib=image.memory_mib,
        disk_size_bytes=image.disk_size_bytes,
        boot=BootFacts(image.environment, image.default_user, image.default_workdir),
        basis=Basis(disk_layers=image.disk.layers),
        origin=Boot(disk=image.disk),
        envd_version=ENVD_VERSION,
    )


async def of_snapshot(
    fleet: Fleet,
    manifest: SnapshotManifest,
    holder: SandboxId,
    *,
    template_id: TemplateId,
    template_name: str | None,
    with_memory: bool,
) -> Source:
    """Return a snapshot as a source: restored, or booted when it has no memory or none is wanted."""
    await fleet.repository.lease(holder, [record.digest for record in manifest.records()])
    disk = await fleet.repository.stack(manifest.disk_layers, manifest.disk_size_bytes)
    is_public = manifest.kind is SnapshotKind.SNAPSHOT
    origin: Origin = Boot(disk=disk)
    memory_layers: tuple[FileRecord, ...] = ()
    if with_memory and manifest.device_state is not None and manifest.machine is not None:
        memory_layers = manifest.memory_layers
        origin = Restore(
            disk=disk,
            memory=await fleet.repository.stack(memory_layers, manifest.memory_mib * MIB),
            memory_name=memory_image_name(memory_layers),
            device_state=await fleet.repository.fetch(manifest.device_state),
            facts=manifest.machine,
            token=daemon_token(manifest),
        )
    return Source(
        template_id=template_id,
        template_name=template_name,
        vcpus=manifest.vcpus,
        memory_mib=manifest.memory_mib,
        disk_size_bytes=manifest.disk_size_bytes,
        boot=manifest.boot,
        basis=Basis(
            disk_layers=manifest.disk_layers,
            memory_layers=memory_layers,
            parent_id=manifest.snapshot_id if is_public else manifest.parent_id,
        ),
        origin=origin,
        envd_version=manifest.envd_version,
    )


def memory_image_name(layers: tuple[FileRecord, ...]) -> str:
    """Return the name of the image that these layers make: equal layers, equal name."""
    digest = hashlib.sha256("\n".join(layer.digest for layer in layers).encode()).hexdigest()
    return f"m{digest[:40]}"


def daemon_token(manifest: SnapshotManifest) -> str:
    """Return the token that the daemon in a snapshot's memory asks for. Raises `Corrupt`."""
    try:
        token = json.loads(manifest.config)["token"]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"the configuration in snapshot {manifest.snapshot_id} cannot be read") from error
    if not isinstance(token, str):
        raise Corrupt(f"the configuration in snapshot {manifest.snapshot_id} cannot be read")
    return token
