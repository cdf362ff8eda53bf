"""Runs inside a guest whose kernel has ublk, as root: drives a real aenv-blockd with `--exporter ublk`, prints JSON.

Needs nothing but Python: arguments are the directory to work in, the program, and the kernel module.
"""

import ctypes
import errno
import fcntl
import hashlib
import itertools
import json
import mmap
import os
import random
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MIB = 1 << 20
BLOCK = 4096
OWNER = 1234
_SYS_FINIT_MODULE = 313
_BLKRRPART = 0x125F
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2
_CHARACTER_DEVICES = Path("/sys/class/ublk-char")


class Refused(Exception):
    """The daemon refused a request; the text is the code of its refusal."""


class Daemon:
    """An aenv-blockd, its control socket, and the processes that it consists of."""

    def __init__(self, root: Path, program: Path, exporter: str) -> None:
        self.root = root
        places = ((f"--{name}", str(root / name)) for name in ("state", "mount", "control"))
        self.words = [str(program), *itertools.chain(*places), "--exporter", exporter]
        self.supervisor: subprocess.Popen[bytes] | None = None

    def start(self) -> dict[str, Any]:
        """Start it, and return its greeting."""
        log = (self.root / "log").open("ab")
        self.supervisor = subprocess.Popen(self.words, start_new_session=True, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while True:
            try:
                greeting: dict[str, Any] = self.ask("hello")
                return greeting
            except OSError:
                if self.supervisor.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.root / "log").read_text()[-2000:]) from None
                time.sleep(0.02)

    def ask(self, verb: str, **arguments: Any) -> Any:
        """Have a verb done, and return its result."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(60)
            line.connect(str(self.root / "control"))
            request = json.dumps({"version": 1, "id": 1, "verb": verb, "arguments": arguments}).encode()
            line.sendall(struct.pack(">I", len(request)) + request)
            (length,) = struct.unpack(">I", _receive(line, 4))
            answer = json.loads(_receive(line, length))
        if "error" in answer:
            raise Refused(answer["error"]["code"])
        return answer["result"]

    def open(self, name: str, **changes: Any) -> Path:
        """Open a disk, writable unless told otherwise, and return where it is."""
        return Path(self.ask("open", **self.arguments(name) | changes)["path"])

    def arguments(self, name: str) -> dict[str, Any]:
        """Return what a writable disk is opened with."""
        writable = {"directory": str(self.root / f"{name}.writable"), "size_bytes": 64 * MIB}
        return {"name": name, "layers": [], "writable": writable, "use": "disk", "owner": OWNER}

    def refusal(self, verb: str, **arguments: Any) -> str:
        """Return the code of the refusal that a verb must meet."""
        try:
            self.ask(verb, **arguments)
        except Refused as error:
            return str(error)
        return "done"

    def kill_server(self) -> float:
        """Kill the server with -9, and return after how many seconds the next one answered."""
        began, dead = time.monotonic(), self.ask("hello")["pid"]
        os.kill(dead, signal.SIGKILL)
        while True:
            with suppress(OSError):
                if self.ask("hello")["pid"] != dead:
                    return time.monotonic() - began
            time.sleep(0.01)

    def kill_all(self) -> None:
        """Kill supervisor and server with -9."""
        assert self.supervisor is not None
        server = self.ask("hello")["pid"]
        # A server that sees its supervisor die would start another one.
        os.kill(server, signal.SIGSTOP)
        self.supervisor.kill()
        os.kill(server, signal.SIGKILL)
        self.supervisor.wait()

    def words_of_log(self) -> list[str]:
        """Return the events that it logged."""
        return [json.loads(line)["event"] for line in (self.root / "log").read_text().splitlines() if line[:1] == "{"]


def _receive(line: socket.socket, length: int) -> bytes:
    parts = b""
    while len(parts) < length:
        part = line.recv(length - len(parts))
        if not part:
            raise ConnectionError("the daemon hung up")
        parts += part
    return parts


@contextmanager
def direct(path: Path, flags: int = os.O_RDWR) -> Iterator[int]:
    """Open a device past the page cache."""
    descriptor = os.open(path, flags | os.O_DIRECT)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def aligned(content: bytes) -> mmap.mmap:
    """Return memory that O_DIRECT accepts."""
    memory = mmap.mmap(-1, max(len(content), BLOCK))
    memory[: len(content)] = content
    return memory


def read(descriptor: int, offset: int, length: int) -> bytes:
    """Read past the page cache."""
    memory = aligned(bytes(length))
    count = os.preadv(descriptor, [memoryview(memory)[:length]], offset)
    assert count == length, f"{count} of {length} bytes at {offset}"
    return bytes(memory[:length])


def write(descriptor: int, offset: int, content: bytes) -> None:
    """Write past the page cache."""
    count = os.pwritev(descriptor, [memoryview(aligned(content))[: len(content)]], offset)
    assert count == len(content), f"{count} of {len(content)} bytes at {offset}"


class Model:
    """A region of a disk, and what must be in it. Wrong bytes are an AssertionError."""

    def __init__(self, start: int, length: int, seed: int) -> None:
        self.start, self.content = start, bytearray(length)
        self.dice = random.Random(seed)
        self.operations = 0

    def step(self, descriptor: int) -> None:
        """Do one random thing, with the disk and with the model."""
        dice = self.dice
        unit = dice.choice((512, BLOCK, BLOCK, 16 * BLOCK, 300 * BLOCK))
        length = unit * dice.randint(1, 3)
        offset = dice.randrange(0, len(self.content) - length) // 512 * 512
        place, span = self.start + offset, slice(offset, offset + length)
        match dice.choice(("read", "read", "write", "write", "write", "discard", "flush")):
            case "read":
                assert read(descriptor, place, length) == self.content[span], f"wrong bytes at {place}"
            case "write":
                content = dice.randbytes(length)
                self.content[span] = content
                write(descriptor, place, content)
            case "discard":
                begin, end = -(-offset // BLOCK) * BLOCK, (offset + length) // BLOCK * BLOCK
                if end > begin:
                    self.content[begin:end] = bytes(end - begin)
                    punch(descriptor, self.start + begin, end - begin)
            case _:
                os.fsync(descriptor)
        self.operations += 1

    def verify(self, descriptor: int) -> None:
        """Compare everything."""
        step = 256 * BLOCK
        for offset in range(0, len(self.content), step):
            length = min(step, len(self.content) - offset)
            found = read(descriptor, self.start + offset, length)
            assert found == self.content[offset : offset + length], f"wrong bytes in {self.start + offset}+{length}"


def punch(descriptor: int, offset: int, length: int) -> None:
    """Discard a range of a block device."""
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (_FALLOC_PUNCH_HOLE | _FALLOC_KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length))
    if library.fallocate(descriptor, *arguments) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def run_models(path: Path, models: list[Model], is_over: Callable[[Model], bool]) -> list[str]:
    """Let threads work on their regions until each is over; return what went wrong."""
    failures: list[str] = []

    def work(model: Model) -> None:
        try:
            with direct(path) as descriptor:
                while not is_over(model):
                    model.step(descriptor)
        except (AssertionError, OSError) as error:
            failures.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def models(seed: int) -> list[Model]:
    """Return four regions beside each other, at the beginning of a disk."""
    return [Model(number * 8 * MIB, 8 * MIB, seed + number) for number in range(4)]


def devices() -> list[str]:
    """Return the character devices that the kernel has for ublk."""
    return sorted(entry.name for entry in _CHARACTER_DEVICES.glob("*"))


def block_name(path: Path) -> str:
    """Return what the kernel calls the disk behind a node."""
    number = path.stat().st_rdev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve().name


def run(*words: str | Path) -> str:
    """Run a program that must succeed."""
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def attempt(action: Callable[[], object]) -> str:
    """Return the name of the error that an action meets."""
    try:
        action()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def load(module: Path) -> None:
    """Load a kernel module."""
    with module.open("rb") as file:
        library = ctypes.CDLL(None, use_errno=True)
        if library.syscall(_SYS_FINIT_MODULE, file.fileno(), b"", 0) != 0:
            raise OSError(ctypes.get_errno(), "finit_module")


def try_without_driver(root: Path, program: Path) -> dict[str, Any]:
    """What happens where the kernel has no ublk: a refusal, or files."""
    (root / "none").mkdir()
    daemon = Daemon(root / "none", program, "ublk")
    refused = subprocess.run(daemon.words, capture_output=True, text=True, timeout=30, check=False)
    daemon.words[-1] = "auto"
    exporters = daemon.start()["exporters"]
    daemon.ask("shutdown")
    return {"exit": refused.returncode, "words": refused.stderr.strip(), "auto": exporters}


def try_node(daemon: Daemon) -> dict[str, Any]:
    """What a disk looks like from outside, also to a kernel that finds a partition table on it."""
    path = daemon.open("plain")
    status = path.stat()
    name = block_name(path)
    queue = Path("/sys/block") / name / "queue"
    with direct(path) as descriptor:
        # One partition over all, as the kernel would read it from a disk's first sector.
        entry = struct.pack("<B3xB3xII", 0, 0x83, 8, 1000)
        write(descriptor, 0, bytes(446) + entry + bytes(48) + b"\x55\xaa" + bytes(BLOCK - 512))
    daemon.ask("close", name="plain", discard=False)
    again = daemon.open("plain")
    name = block_name(again)
    with direct(again) as descriptor:
        is_kept = read(descriptor, 0, BLOCK)[510:512] == b"\x55\xaa"
        rescan = attempt(lambda: fcntl.ioctl(descriptor, _BLKRRPART))
    found = {
        "is_block": stat.S_ISBLK(status.st_mode),
        "mode": oct(status.st_mode & 0o777),
        "owner": status.st_uid,
        "bytes": int((Path("/sys/block") / name / "size").read_text()) * 512,
        "cache": (queue / "write_cache").read_text().strip(),
        "discard_bytes": int((queue / "discard_max_bytes").read_text()),
        "is_kept": is_kept,
        "rescan": rescan,
        "partitions": [entry.name for entry in (Path("/sys/block") / name).glob(f"{name}p*")],
        "resize": daemon.refusal("resize", name="plain", size_bytes=128 * MIB),
    }
    daemon.ask("close", name="plain", discard=True)
    return found | {"is_gone": not path.exists(), "devices_left": devices()}


def try_file_system(daemon: Daemon, root: Path) -> dict[str, Any]:
    """A file system, mounted, written, checked, and read again over sealed layers."""
    path, place = daemon.open("files"), root / "mounted"
    place.mkdir()
    run("mkfs.ext4", "-q", path)
    run("mount", path, place)
    content = random.Random(5).randbytes(12 * MIB)
    (place / "file").write_bytes(content)
    os.sync()
    in_use = daemon.refusal("close", name="files", discard=False)
    is_still_there = path.exists()
    run("umount", place)
    run("e2fsck", "-fn", path)
    sealed = str(root / "sealed")
    daemon.ask("seal", name="files", seal_id="1", sealed_path=sealed, next_directory=str(root / "next"))
    daemon.ask("sealed", name="files", seal_id="1", digest=False)
    layers = [{"kind": "file", "path": sealed}]
    over = daemon.open("over", layers=layers, writable={"directory": str(root / "over"), "size_bytes": None})
    run("mount", over, place)
    is_same = hashlib.sha256((place / "file").read_bytes()).digest() == hashlib.sha256(content).digest()
    run("umount", place)
    fixed = daemon.open("fixed", layers=layers, writable=None)
    memory = daemon.open("memory", layers=layers, writable=None, use="memory")
    with fixed.open("rb") as one, memory.open("rb") as other:
        is_equal = one.read(MIB) == other.read(MIB)
    read_only = attempt(lambda: fixed.write_bytes(bytes(BLOCK)))
    counters = daemon.ask("stat", name="files")["counters"]
    for name in ("files", "over", "fixed", "memory"):
        daemon.ask("close", name=name, discard=True)
    return {
        "close_while_mounted": in_use,
        "is_still_there": is_still_there,
        "is_same": is_same,
        "is_equal": is_equal,
        "memory_is_file": memory.is_relative_to(daemon.root / "mount"),
        "read_only": read_only,
        "flushes": counters["flushes"],
        "errors": counters["errors"],
    }


def try_page_cache(daemon: Daemon, root: Path) -> dict[str, Any]:
    """A layer that is sealed while the kernel keeps writes to itself: they are in it."""
    path = daemon.open("cached")
    content = random.Random(6).randbytes(2 * MIB)
    with path.open("r+b", buffering=0) as device:
        device.seek(MIB)
        device.write(content)
        sealed = str(root / "cached-sealed")
        frozen: dict[str, Any] = daemon.ask(
            "seal", name="cached", seal_id="1", sealed_path=sealed, next_directory=str(root / "cached-next")
        )
        device.seek(MIB)
        device.write(bytes(2 * MIB))
    daemon.ask("sealed", name="cached", seal_id="1", digest=False)
    fixed = daemon.open("fixed", layers=[{"kind": "file", "path": sealed}], writable=None)
    is_in_layer = fixed.read_bytes()[MIB : 3 * MIB] == content
    is_overwritten = path.read_bytes()[MIB : 3 * MIB] == bytes(2 * MIB)
    for name in ("fixed", "cached"):
        daemon.ask("close", name=name, discard=True)
    return {"is_in_layer": is_in_layer, "is_overwritten": is_overwritten} | frozen


def try_model(daemon: Daemon) -> dict[str, Any]:
    """Random reads, writes, discards and flushes of four threads, against a model."""
    path, regions = daemon.open("model"), models(10)
    failures = run_models(path, regions, lambda model: model.operations >= 150)
    with direct(path) as descriptor:
        for region in regions:
            region.verify(descriptor)
    counters = daemon.ask("stat", name="model")["counters"]
    daemon.ask("close", name="model", discard=True)
    return {"failures": failures, "zeroed_bytes": counters["zeroed_bytes"], "flushes": counters["flushes"]}


def try_failure(daemon: Daemon) -> dict[str, Any]:
    """A disk that cannot be shown, because its node has no place: a refusal that leaves nothing behind."""
    place = daemon.root / "mount.devices"
    place.rmdir()
    code = daemon.refusal("open", **daemon.arguments("lost"))
    seen = {"images": daemon.ask("list")["images"], "is_clean": not (daemon.root / "lost.writable").exists()}
    seen |= {"code": code, "devices_left": devices()}
    place.mkdir(0o711)
    daemon.open("lost")
    daemon.ask("close", name="lost", discard=True)
    return seen


def try_deaths(daemon: Daemon) -> dict[str, Any]:
    """The same while the server is killed again and again, then with its supervisor, always with requests under way."""
    path, regions = daemon.open("deaths"), models(20)
    number, failures = path.stat().st_rdev, []
    is_over = threading.Event()
    worker = threading.Thread(target=lambda: failures.extend(run_models(path, regions, lambda _: is_over.is_set())))
    worker.start()
    seconds = []
    for _ in range(5):
        time.sleep(0.7)
        seconds.append(daemon.kill_server())
    time.sleep(0.5)
    daemon.kill_all()
    time.sleep(0.5)
    began = time.monotonic()
    daemon.start()
    found = daemon.open("deaths")
    all_dead = time.monotonic() - began
    time.sleep(0.7)
    is_over.set()
    worker.join()
    with direct(path) as descriptor:
        for region in regions:
            region.verify(descriptor)
    is_same = found == path and path.stat().st_rdev == number
    used = daemon.refusal("shutdown")
    daemon.ask("close", name="deaths", discard=True)
    return {
        "failures": failures,
        "operations": sum(region.operations for region in regions),
        "server_back_seconds": [round(value, 3) for value in seconds],
        "all_back_seconds": round(all_dead, 3),
        "is_same": is_same,
        "adopted": daemon.words_of_log().count("device_adopted"),
        "shutdown": used,
        "devices_left": devices(),
    }


def try_users(daemon: Daemon) -> dict[str, Any]:
    """Closing while a process has the disk open: refused, or forced and then an error for the process."""
    path = daemon.open("used")
    with direct(path) as descriptor:
        users = daemon.ask("stat", name="used")["users"]
        refused = daemon.refusal("close", name="used", discard=True)
        is_still_there = path.exists()
        write(descriptor, 0, bytes(BLOCK))
        daemon.ask("close", name="used", discard=True, force=True)
        after = attempt(lambda: write(descriptor, 0, bytes(BLOCK)))
        is_reopened = stat.S_ISBLK(daemon.open("used").stat().st_mode)
    daemon.ask("close", name="used", discard=True)
    return {
        "users": users,
        "refused": refused,
        "is_still_there": is_still_there,
        "after_force": after,
        "is_reopened": is_reopened,
        "is_gone": not path.exists(),
        "devices_left": devices(),
    }


def try_change_of_mind(daemon: Daemon) -> dict[str, Any]:
    """A disk of a daemon that died as ublk's, and starts again as FUSE's: a file with the same bytes, no device."""
    path = daemon.open("moved")
    with direct(path) as descriptor:
        write(descriptor, MIB, b"\x5a" * BLOCK)
    daemon.kill_all()
    daemon.words[-1] = "fuse"
    exporters = daemon.start()["exporters"]
    moved = daemon.open("moved")
    with direct(moved) as descriptor:
        is_same = read(descriptor, MIB, BLOCK) == b"\x5a" * BLOCK
    seen = {"exporters": exporters, "is_file": moved.is_file(), "is_same": is_same, "devices_left": devices()}
    daemon.ask("close", name="moved", discard=True)
    return seen


def main() -> None:
    """Try everything, each part after the last, and print what was seen."""
    root, program, module = (Path(word) for word in sys.argv[1:4])
    root.mkdir(parents=True)
    seen: dict[str, Any] = {"without_driver": try_without_driver(root, program)}
    load(module)
    daemon = Daemon(root, program, "ublk")
    seen["exporters"] = daemon.start()["exporters"]
    seen["node"] = try_node(daemon)
    seen["file_system"] = try_file_system(daemon, root)
    seen["page_cache"] = try_page_cache(daemon, root)
    seen["model"] = try_model(daemon)
    seen["users"] = try_users(daemon)
    seen["failure"] = try_failure(daemon)
    seen["deaths"] = try_deaths(daemon)
    seen["change_of_mind"] = try_change_of_mind(daemon)
    daemon.ask("shutdown")
    assert daemon.supervisor is not None
    seen["exit"] = daemon.supervisor.wait(timeout=30)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
