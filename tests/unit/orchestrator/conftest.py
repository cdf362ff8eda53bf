"""Fixtures of the orchestrator's tests."""

from support.whole_node import make_node, node

__all__ = ["make_node", "node"]
