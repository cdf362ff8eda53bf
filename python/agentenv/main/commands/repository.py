"""The verb `aenv repository`."""

from agentenv.main import settings
from agentenv.main.repository.command import make_command

repository = make_command(settings.load)
