"""What can go wrong between a plan and a live sandbox. Whatever was taken has been given back when one is raised.

AgentEnvError
├── Unavailable
│   ├── LaunchFailed       a part of the launch failed; the message names it
│   │   └── GuestPanicked  the guest's kernel gave up before the guest answered
│   └── GuestUnresponsive  the guest did not answer before a capture that needs it; the sandbox runs on
└── TimedOut
    └── GuestNotReady      the guest did not answer in time after its machine was started
"""

from agentenv.base.errors import TimedOut, Unavailable


class LaunchFailed(Unavailable):
    """A part of the launch failed; the message names it."""

    code = "sandbox_create_failed"


class GuestPanicked(LaunchFailed):
    """The guest's kernel gave up before the guest answered."""


class GuestUnresponsive(Unavailable):
    """The guest did not answer before a capture that needs it; the sandbox runs on."""

    code = "sandbox_guest_unresponsive"


class GuestNotReady(TimedOut):
    """The guest did not answer in time after its machine was started."""

    code = "sandbox_create_failed"
