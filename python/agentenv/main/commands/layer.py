"""The verb `aenv layer`."""

from agentenv.main.layer.commands import layer

__all__ = ["layer"]
