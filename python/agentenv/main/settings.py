"""The settings tree: every package's settings under its name, read from a file and the environment, validated once."""

import os
import textwrap
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from agentenv.api.settings import ApiSettings
from agentenv.base.errors import Invalid
from agentenv.base.log import LogFormat, LogLevel
from agentenv.blocks.settings import BlocksSettings
from agentenv.guest.settings import GuestSettings
from agentenv.images.settings import ImagesSettings
from agentenv.network.settings import NetworkSettings
from agentenv.objects.settings import ObjectsSettings
from agentenv.orchestrator.settings import OrchestratorSettings
from agentenv.proxy.settings import ProxySettings
from agentenv.runtime.settings import RuntimeSettings
from agentenv.snapshots.settings import SnapshotsSettings
from agentenv.vmm.settings import VmmSettings

DEFAULT_CONFIG = Path("/etc/agentenv/config.toml")


class SettingsInvalid(Invalid):
    """The configuration cannot be obeyed; the message names each key."""

    code = "settings_invalid"


class LogSettings(BaseModel):
    """What is logged, and how it looks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: LogLevel = Field(default=LogLevel.INFO, description="The least important event that is written.")
    format: LogFormat = Field(
        default=LogFormat.AUTO, description="`text`, `json`, or `auto`: text on a terminal, JSON elsewhere."
    )


class ServerSettings(BaseModel):
    """How the server starts and stops."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    detach_on_stop: bool = Field(
        default=False,
        description="On SIGTERM, leave the sandboxes running for the next server instead of ending them.",
    )
    stop_timeout_seconds: float = Field(
        default=60, gt=0, description="Ending everything at a stop may take this long; then the process ends anyway."
    )


class Settings(BaseSettings):
    """The whole tree. A key is set by `AENV_<PACKAGE>__<KEY>` in the environment, or by the file, or by its default."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="AENV_", env_nested_delimiter="__", env_nested_max_split=1
    )

    # Monitors of a home are known by its path in their words: a relative one would be the same for several homes.
    home: Annotated[Path, AfterValidator(Path.absolute)] = Field(
        default=Path("/var/lib/agentenv"),
        description="Where everything of this server lives: images, kernels, disks, records, the API key.",
    )
    server: ServerSettings = ServerSettings()
    log: LogSettings = LogSettings()
    api: ApiSettings = ApiSettings()
    proxy: ProxySettings = ProxySettings()
    orchestrator: OrchestratorSettings = OrchestratorSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    snapshots: SnapshotsSettings = SnapshotsSettings()
    objects: ObjectsSettings = ObjectsSettings()
    images: ImagesSettings = ImagesSettings()
    guest: GuestSettings = GuestSettings()
    blocks: BlocksSettings = BlocksSettings()
    network: NetworkSettings = NetworkSettings()
    vmm: VmmSettings = VmmSettings()


def load(path: Path | None = None) -> Settings:
    """Read the configuration: `path`, else the file that `AENV_CONFIG` names, else the system's, if it is there.

    Raises `SettingsInvalid` when the file is not there or a key is unknown or wrong.
    """
    named = path or (Path(os.environ["AENV_CONFIG"]) if os.environ.get("AENV_CONFIG") else None)
    if named is not None and not named.is_file():
        raise SettingsInvalid(f"the configuration file {named} does not exist")
    file = named or DEFAULT_CONFIG
    _refuse_unknown_tables()

    class FromFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, file)

    try:
        # One class for all, so that equal settings are equal wherever they came from.
        return Settings.model_validate(FromFile().model_dump())
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise SettingsInvalid(f"the configuration cannot be used: {problems}") from error
    except ValueError as error:
        raise SettingsInvalid(f"the configuration file {file} cannot be read: {error}") from error


def _refuse_unknown_tables() -> None:
    """Names without a table are left alone: some are for other programs, such as the API key."""
    for name in os.environ:
        table, separator, _ = name.upper().removeprefix("AENV_").partition("__")
        if name.upper().startswith("AENV_") and separator and table.lower() not in Settings.model_fields:
            raise SettingsInvalid(f"the environment variable {name} names no table of the configuration")


def render_default() -> str:
    """Return the text of config/default.toml: every key with its description and its default."""
    lines = [
        "# Every setting of AgentENV with its default. Generated from the models by `make config`; do not edit.",
        "# Copy what you change to /etc/agentenv/config.toml, or set AENV_<TABLE>__<KEY> in the environment.",
        "",
    ]
    tables: list[tuple[str, type[BaseModel]]] = []
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            tables.append((name, field.annotation))
        else:
            lines += _render_key(name, field.description, field.default)
    for name, model in tables:
        lines += ["", f"# {(model.__doc__ or '').strip().splitlines()[0]}", f"[{name}]"]
        for key, field in model.model_fields.items():
            lines += _render_key(key, field.description, field.get_default(call_default_factory=True))
    return "\n".join(lines) + "\n"


def _render_key(name: str, description: str | None, value: Any) -> list[str]:
    comment = textwrap.wrap(description or "", width=110, initial_indent="# ", subsequent_indent="# ")
    return [*comment, f"{name} = {_render_value(value)}"]


def _render_value(value: Any) -> str:
    match value:
        case None:
            return '""'
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case list() | tuple() | frozenset():
            items = sorted(value) if isinstance(value, frozenset) else value
            return "[" + ", ".join(_render_value(item) for item in items) + "]"
        case _:
            text = str(value).replace("\\", "\\\\").replace('"', '\\"')
            return f'"{text}"'
