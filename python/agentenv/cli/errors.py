"""What can go wrong at the command line itself. Exit codes are the door's business.

AgentEnvError
└── Invalid
    ├── ShellMissing     the image cannot run the command in the form that was given
    └── TerminalMissing  an interactive verb was started without a terminal
Interrupted              no error: the user ended the verb by a signal
"""

from agentenv.base.errors import Invalid


class ShellMissing(Invalid):
    """The image cannot run the command in the form that was given."""

    code = "shell_missing"


class TerminalMissing(Invalid):
    """An interactive verb was started without a terminal."""

    code = "terminal_missing"


class Interrupted(Exception):
    """The user ended a verb by a signal; there is nothing to explain, only an exit code to return."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"interrupted, exit code {exit_code}")
        self.exit_code = exit_code
