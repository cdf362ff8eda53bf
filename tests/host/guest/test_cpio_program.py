import pytest

from agentenv.base import process
from agentenv.guest import cpio

pytestmark = pytest.mark.host


async def test_another_program_reads_the_same_names() -> None:
    entries = [
        cpio.directory("dev"),
        cpio.character_device("dev/console", 5, 1),
        cpio.file("init", b"#!", 0o755),
        cpio.file("odd", b"12345"),
    ]
    listing = await process.run(["cpio", "-t", "-v", "--numeric-uid-gid"], stdin=cpio.write(entries))
    lines = listing.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["drwxr-xr-x", "crw-------", "-rwxr-xr-x", "-rw-r--r--"]
    assert [line.split()[-1] for line in lines] == ["dev", "dev/console", "init", "odd"]
