"""Settings of `vmm`."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class DriverChoice(StrEnum):
    """Which virtual machine monitor runs the guests."""

    AUTO = "auto"
    QEMU = "qemu"


class AcceleratorChoice(StrEnum):
    """What executes the guests' instructions."""

    AUTO = "auto"
    KVM = "kvm"
    TCG = "tcg"


class PreloadChoice(StrEnum):
    """Whether monitors are started with the preload library."""

    AUTO = "auto"
    OFF = "off"


class VmmSettings(BaseModel):
    """How virtual machines are run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    driver: DriverChoice = Field(
        default=DriverChoice.AUTO, description="Virtual machine monitor: auto or qemu. auto takes the best one here."
    )
    accelerator: AcceleratorChoice = Field(
        default=AcceleratorChoice.AUTO,
        description="What executes guests: auto, kvm or tcg. auto takes kvm when a guest really starts under it.",
    )
    qemu_binary: str = Field(default="", description="QEMU program. Empty: qemu-system-<this architecture>, by PATH.")
    qemu_preload: PreloadChoice = Field(
        default=PreloadChoice.AUTO,
        description="Library in QEMU for live captures: auto or off. auto uses it when it works with this QEMU.",
    )
    start_timeout_seconds: float = Field(
        default=20, gt=0, le=600, description="A monitor that does not answer this long after its start is given up."
    )
    command_timeout_seconds: float = Field(
        default=5, gt=0, le=600, description="A monitor's answer to one command may take this long."
    )
    probe_timeout_seconds: float = Field(
        default=30, gt=0, le=600, description="A probed accelerator must boot the guest kernel within this time."
    )
    probe_silence_seconds: float = Field(
        default=5, gt=0, le=600, description="A probed accelerator is given up when its guest says nothing this long."
    )
    console_limit_kib: int = Field(
        default=256, ge=8, le=65536, description="Disk space for one guest's console log; the end is kept."
    )
    console_rate_kib_per_second: int = Field(
        default=128, ge=1, le=65536, description="A guest that writes more to its console is slowed down to this."
    )
    translation_cache_mib: int = Field(
        default=128, ge=32, le=2048, description="Under tcg, host memory for one guest's translated code, at most."
    )
    capture_threads: int = Field(
        default=2, ge=1, le=64, description="How many guests' memories are copied or scanned at one time."
    )
    oom_score_adjustment: int = Field(
        default=500, ge=0, le=1000, description="How much rather the kernel ends a guest than us when memory runs out."
    )
