"""The verb `aenv doctor`."""

from agentenv.main import settings
from agentenv.main.doctor.command import make_command

doctor = make_command(settings.load)
