"""Programs that live in a guest through captures, and tell whether they were harmed."""

import time
from collections.abc import Callable
from typing import Any

from e2b import Sandbox

# Its counter is in memory alone; each step is appended to a file, and told to whoever connects.
COUNTER = """
import os, random, socket, threading
numbers = open("/home/user/numbers", "a", buffering=1)
state = {"n": 0}
server = socket.create_server(("0.0.0.0", 7777))
def serve():
    while True:
        peer, _ = server.accept()
        peer.sendall(f"{state['n']} {random.random()} {os.urandom(8).hex()}".encode())
        peer.close()
threading.Thread(target=serve, daemon=True).start()
while True:
    state["n"] += 1
    numbers.write(f"{state['n']}\\n")
    threading.Event().wait(0.05)
"""
ASK = """
import socket
with socket.create_connection(("127.0.0.1", 7777), 20) as peer:
    print(peer.makefile().read())
"""


def start_counter(sandbox: Sandbox) -> None:
    """Start the program and wait until it counts."""
    sandbox.files.write("counter.py", COUNTER)
    sandbox.files.write("ask.py", ASK)
    sandbox.commands.run("exec python3 counter.py", background=True, timeout=0)
    wait_until(lambda: sandbox.files.exists("numbers") and numbers(sandbox))


def ask_counter(sandbox: Sandbox) -> tuple[int, str, str]:
    """Return what the program says over TCP: its count, a number of Python's, a number of the kernel's."""
    count, python, kernel = sandbox.commands.run("python3 ask.py").stdout.split()
    return int(count), python, kernel


def numbers(sandbox: Sandbox) -> list[int]:
    """Return what the program has appended to its file; the last line may be half written."""
    return [int(line) for line in sandbox.files.read("numbers").split("\n")[:-1]]


def check_counter(sandbox: Sandbox, at_least: int) -> int:
    """Return the count of a program that has lost nothing, repeated nothing, and goes on."""
    written = numbers(sandbox)
    assert written == list(range(1, len(written) + 1))
    count = ask_counter(sandbox)[0]
    assert count >= at_least
    wait_until(lambda: ask_counter(sandbox)[0] > count)
    return count


def wait_until(condition: Callable[[], Any], seconds: float = 60) -> None:
    """Wait for something that must come to pass."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
