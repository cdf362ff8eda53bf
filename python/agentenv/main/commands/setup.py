"""The verb `aenv setup`."""

from agentenv.main import settings
from agentenv.main.setup.command import make_command

setup = make_command(settings.load)
