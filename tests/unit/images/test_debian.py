import os
import stat
from pathlib import Path

import pytest

from agentenv.images import debian
from agentenv.images.debian import PackageSource

SOURCE = PackageSource("mirror://somebody:secret@a.test:81/debian/", "bookworm", ("main",), "/k.gpg")


def test_source_has_the_one_line_form_of_apt() -> None:
    plain = PackageSource("mirror://a.test/debian/", "bookworm", ("contrib", "main"), "")
    assert plain.line() == "deb mirror://a.test/debian/ bookworm contrib main"
    assert SOURCE.line().startswith("deb [signed-by=/k.gpg] mirror://somebody:secret@")


def _root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("etc/apt", "var/lib/apt/lists", "var/log/apt", "tmp", "run"):
        (root / name).mkdir(parents=True)
    return root


def test_nothing_of_the_host_stays_in_the_image(tmp_path: Path) -> None:
    root = _root(tmp_path)
    (root / "etc/resolv.conf").write_text("nameserver 192.0.2.1")
    (root / "etc/machine-id").write_text("0" * 32)
    (root / "var/lib/apt/lists/index").touch()
    (root / "var/log/apt/history.log").touch()
    debian.furnish(root, [SOURCE])
    assert "secret" not in (root / "etc/apt/sources.list").read_text()
    assert "mirror://a.test:81/debian/ bookworm main" in (root / "etc/apt/sources.list").read_text()
    assert not (root / "etc/resolv.conf").exists()
    assert (root / "etc/machine-id").read_bytes() == b""
    assert list((root / "var/lib/apt/lists").iterdir()) == list((root / "var/log").iterdir()) == []


def test_user_may_become_root_without_a_password(tmp_path: Path) -> None:
    root = _root(tmp_path)
    debian.furnish(root, [SOURCE])
    rule = root / "etc/sudoers.d/user"
    assert rule.read_text() == "user ALL=(ALL:ALL) NOPASSWD: ALL\n"
    assert stat.S_IMODE(rule.stat().st_mode) == 0o440


def test_link_in_the_image_does_not_lead_out_of_it(tmp_path: Path) -> None:
    root, outside = _root(tmp_path), tmp_path / "hostname"
    outside.write_text("host")
    (root / "etc/hostname").symlink_to(outside)
    (root / "etc/resolv.conf").symlink_to(outside)
    debian.furnish(root, [SOURCE])
    assert outside.read_text() == "host"
    assert (root / "etc/hostname").read_text() == "sandbox\n"


def test_only_proxies_of_the_environment_reach_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", "p")
    monkeypatch.setenv("AENV_API_KEY", "secret")
    assert set(debian.build_environment(tmp_path)) == {"http_proxy", "PATH", "LC_ALL", "TMPDIR", "HOME"}
