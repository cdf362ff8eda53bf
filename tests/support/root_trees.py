"""Root trees of minimal images, made of Debian's packages on demand. Knows nothing of disks and servers."""

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

Tree = Callable[[Path], None]
NONROOT = 65532
_MACHINE = platform.machine()
# Says who runs it, as its own C library sees the image.
_WHO = r"""
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void) {
    struct passwd *user = getpwuid(getuid());
    printf("%s %s\n", user ? user->pw_name : "unknown", getenv("HOME"));
    return 0;
}
"""


def busybox(root: Path) -> None:
    """One static program under all its names; no account, no other file."""
    _unpack(["busybox-static"], root)
    _keep(root, "bin")
    names = _run([root / "bin/busybox", "--list"]).split()
    assert "sh" in names
    for name in names:
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")


def musl(root: Path) -> None:
    """As Alpine is: busybox, musl's loader, a program that needs it, accounts with ash; no bash."""
    busybox(root)
    with tempfile.TemporaryDirectory(prefix="aenv-musl-") as scratch:
        development = Path(scratch)
        _unpack(["musl", "musl-dev"], development)
        loader = f"ld-musl-{_MACHINE}.so.1"
        library = development / f"lib/{_MACHINE}-linux-musl/libc.so"
        (root / "lib").mkdir()
        (root / "lib" / loader).write_bytes(library.read_bytes())
        (root / "lib" / loader).chmod(0o755)
        _compile_with_musl(development, library, f"/lib/{loader}", root / "bin/who-am-i")
    _write_accounts(root, "root:x:0:0:root:/root:/bin/ash\nuser:x:1000:1000::/home/user:/bin/ash\n")
    (root / "home/user").mkdir(parents=True)
    os.chown(root / "home/user", 1000, 1000)


def distroless(root: Path) -> None:
    """As Google's are: a C library and Python, an account without privileges, no shell."""
    _unpack(["libc6", "zlib1g", "libexpat1", *_minimal_python()], root)
    _keep(root, "etc", "lib", "lib64", "usr")
    _write_accounts(root, f"root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:{NONROOT}:{NONROOT}::/home/nonroot:\n")
    (root / "home/nonroot").mkdir(parents=True)
    os.chown(root / "home/nonroot", NONROOT, NONROOT)
    (root / "usr/bin/python3").symlink_to(next((root / "usr/bin").glob("python3.*")).name)


def _minimal_python() -> list[str]:
    """Return the names of the packages of this release's Python."""
    lines = _run(["apt-cache", "depends", "python3-minimal"]).splitlines()
    (program,) = [name for line in lines if (name := line.split()[-1]).startswith("python3.")]
    return [program, f"lib{program}"]


def _compile_with_musl(development: Path, library: Path, loader: str, program: Path) -> None:
    parts = development / f"usr/lib/{_MACHINE}-linux-musl"
    source = development / "who.c"
    source.write_text(_WHO)
    _run(
        [
            *("cc", "-nostdinc", "-isystem", development / f"usr/include/{_MACHINE}-linux-musl", "-nostdlib", "-pie"),
            *("-fPIE", f"-Wl,-dynamic-linker,{loader}", "-o", program, parts / "Scrt1.o", parts / "crti.o", source),
            *("-L", library.parent, "-l:libc.so", parts / "crtn.o"),
        ]
    )


def _write_accounts(root: Path, passwd: str) -> None:
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text(passwd)


def _unpack(packages: Sequence[str], root: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="aenv-packages-") as directory:
        # Packages are fetched as root; apt would rather have a directory that its own user can write into.
        _run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *packages], directory=Path(directory))
        archives = sorted(Path(directory).glob("*.deb"))
        assert len(archives) == len(packages)
        for archive in archives:
            _run(["dpkg-deb", "--extract", archive, root])


def _keep(root: Path, *names: str) -> None:
    """Remove all other directories of the root, and the documentation."""
    shutil.rmtree(root / "usr/share")
    for path in root.iterdir():
        if path.name not in names:
            shutil.rmtree(path)


def _run(command: Sequence[str | Path], directory: Path | None = None) -> str:
    finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, f"{command[0]} failed: {finished.stderr}{finished.stdout}"
    return finished.stdout
