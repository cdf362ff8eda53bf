"""The command line against a real server and a real VM, as processes of their own."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

from e2b import Sandbox

from support.server import Access

COMMAND = [sys.executable, "-m", "agentenv.main"]


def environment(access: Access, home: Path) -> dict[str, str]:
    keys = {"AENV_API_URL": access["api_url"], "AENV_API_KEY": access["api_key"], "HOME": str(home)}
    return os.environ | keys | {"XDG_CONFIG_HOME": str(home)}


def aenv(access: Access, home: Path, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *words], input=stdin, capture_output=True, env=environment(access, home), timeout=180, check=False
    )


def test_a_sandbox_is_started_listed_used_and_deleted(access: Access, tmp_path: Path) -> None:
    started = aenv(access, tmp_path, "start", "--metadata", "from=cli", "--timeout", "600")
    sandbox_id = started.stdout.decode().strip()
    assert (started.returncode, len(sandbox_id)) == (0, 20), started.stderr

    listed = json.loads(aenv(access, tmp_path, "list", "--json", "--metadata", "from=cli").stdout)
    assert sandbox_id in json.dumps(listed)

    done = aenv(access, tmp_path, "exec", sandbox_id, "--", "sh", "-c", "cat; echo err >&2; exit 3", stdin=b"\x00in\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"\x00in\n", b"err\n")

    assert aenv(access, tmp_path, "delete", sandbox_id).returncode == 0
    again = aenv(access, tmp_path, "delete", sandbox_id)
    assert (again.returncode, again.stderr.count(b"\n")) == (1, 1)


def test_a_terminal_is_opened_and_ends_with_its_shell(access: Access, sandbox: Sandbox, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "connect", sandbox.sandbox_id],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment(access, tmp_path),
        start_new_session=True,
    )
    os.close(slave)
    os.write(master, b"echo in-$((40+2)); exit 5\n")
    shown = b""
    try:
        while chunk := os.read(master, 4096):
            shown += chunk
    except OSError:
        pass  # the other side of a terminal that is gone reads as EIO
    os.close(master)
    assert process.wait(60) == 5
    assert b"in-42" in shown


def test_doctor_says_that_this_machine_can_work(tmp_path: Path, access: Access) -> None:
    doctor = aenv(access, tmp_path, "doctor", "--json")
    facts = json.loads(doctor.stdout)
    assert doctor.returncode == 0, facts
    assert "qemu" in json.dumps(facts)


def test_a_wrong_key_is_one_sentence(access: Access, tmp_path: Path) -> None:
    refused = aenv({**access, "api_key": "wrong"}, tmp_path, "list")
    assert refused.returncode == 1
    assert refused.stderr.count(b"\n") == 1
