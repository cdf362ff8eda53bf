"""A real S3-compatible server on loopback, for tests: SeaweedFS, which comes as a wheel."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentenv.objects.settings import ObjectsSettings

KEY_ID = "test-key"
SECRET = "test-secret-of-no-value"
_START_SECONDS = 60


@dataclass(frozen=True)
class ObjectServer:
    """Where the server listens; `bucket` is there once something was put into it."""

    endpoint: str
    bucket: str
    credentials_path: Path

    def settings(self, prefix: str) -> ObjectsSettings:
        return ObjectsSettings(
            endpoint=self.endpoint,
            bucket=self.bucket,
            prefix=prefix,
            credentials_path=self.credentials_path,
            timeout_seconds=20,
            max_retries=2,
        )


@contextlib.contextmanager
def run_object_server(directory: Path) -> Iterator[ObjectServer]:
    """Run a server whose files lie in `directory` until the block ends."""
    credentials = directory / "credentials.json"
    credentials.write_text(json.dumps({"access_key_id": KEY_ID, "secret_access_key": SECRET}))
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": KEY_ID, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (directory / "volumes").mkdir()
    master, volume, filer, s3 = _free_ports(4)
    command = [
        *(_program(), "server", f"-dir={directory / 'volumes'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-master.port={master}", f"-volume.port={volume}", "-volume.max=20", "-master.volumeSizeLimitMB=64"),
        *("-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}", f"-s3.config={directory / 's3.json'}"),
    ]
    with (directory / "log").open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, cwd=directory)
    try:
        _wait_until_it_answers(server, f"http://127.0.0.1:{s3}", directory / "log")
        yield ObjectServer(f"http://127.0.0.1:{s3}", "agentenv-tests", credentials)
    finally:
        server.kill()
        server.wait()


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    assert found, "the program `weed` is not installed; run scripts/bootstrap dev"
    return found


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            # The server listens for its own protocol 10,000 above each of its ports.
            while True:
                one.bind(("127.0.0.1", 0))
                if one.getsockname()[1] < 55000:
                    break
                one.close()
                one.__init__()  # type: ignore[misc]
        return [one.getsockname()[1] for one in sockets]


def _wait_until_it_answers(server: "subprocess.Popen[bytes]", address: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        assert server.poll() is None, f"the object server ended: {log.read_text()[-2000:]}"
        try:
            urllib.request.urlopen(address, timeout=5)
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"the object server does not answer: {log.read_text()[-2000:]}")
