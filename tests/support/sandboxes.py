"""Sandboxes on a node of fakes, as tests want them: what is in their memory and on their disk is a number each."""

from agentenv.orchestrator.base import Sandbox, SandboxState
from support.whole_node import Node, a_request


async def running(node: Node, memory: int = 7, disk: int = 5, **words: object) -> Sandbox:
    """Return a new sandbox that holds these numbers."""
    sandbox = await node.service.create(a_request(**words))
    put(node, sandbox.id, memory, disk)
    return sandbox


def put(node: Node, sandbox_id: str, memory: int, disk: int) -> None:
    """Let the guest change its memory and its disk."""
    node.driver.running[sandbox_id].memory = memory
    node.blocks.contents[sandbox_id] = disk


def holds(node: Node, sandbox_id: str) -> tuple[int, int]:
    """Return what is in the memory and on the disk of a running sandbox."""
    return node.driver.running[sandbox_id].memory, node.blocks.contents[sandbox_id]


def state(node: Node, sandbox: Sandbox) -> SandboxState:
    """Return where a sandbox is in its life."""
    return node.fleet.book.get(sandbox.id).state
