"""What can go wrong on the guest's side.

AgentEnvError
├── Invalid
│   ├── ArchitectureUnsupported   this processor has no guests
│   └── BootFileRefused           a file that cannot be a guest's kernel or daemon
├── Unavailable
│   ├── GuestUnreachable          the daemon in the guest does not answer
│   ├── GuestRefused              the daemon answered with an error, or with something the contract does not know
│   ├── GuestNotProvisioned       no kernel or initramfs has been prepared
│   └── ModuleMissing             a kernel lacks a driver that guests need
└── Corrupt
    └── KernelDamaged             a kernel, module or manifest that is not what it says
"""

from agentenv.base.errors import Corrupt, Invalid, Unavailable


class ArchitectureUnsupported(Invalid):
    """This processor has no guests."""

    code = "architecture_unsupported"


class BootFileRefused(Invalid):
    """A file that cannot be a guest's kernel or daemon."""

    code = "boot_file_refused"


class GuestUnreachable(Unavailable):
    """The daemon in the guest does not answer."""

    code = "guest_unreachable"


class GuestRefused(Unavailable):
    """The daemon answered with an error, or with something the contract does not know."""

    code = "guest_refused"


class GuestNotProvisioned(Unavailable):
    """No kernel or initramfs has been prepared on this machine."""

    code = "guest_not_provisioned"


class ModuleMissing(Unavailable):
    """A kernel lacks a driver that guests need."""

    code = "module_missing"


class KernelDamaged(Corrupt):
    """A kernel, module or manifest is not what it says it is."""

    code = "kernel_damaged"
