import os
from pathlib import Path

import pytest

from agentenv.guest.architecture import Architecture
from agentenv.main.setup import host
from agentenv.main.setup.apt import parse_sources
from agentenv.main.setup.errors import HostUnknown

X86, ARM = Architecture.X86_64, Architecture.AARCH64
BOOKWORM = host.find_distribution({"ID": "debian", "VERSION_ID": "12"})
NOBLE = host.find_distribution({"ID": "ubuntu", "VERSION_ID": "24.04"})


@pytest.mark.parametrize(
    "names, newest",
    [
        (
            ["linux-image-6.12.9+deb13-cloud-amd64", "linux-image-6.12.48+deb13-cloud-amd64"],
            "linux-image-6.12.48+deb13-cloud-amd64",
        ),
        (
            ["linux-image-6.12.48+deb13-cloud-amd64-unsigned", "linux-image-6.12.48+deb13-cloud-amd64"],
            "linux-image-6.12.48+deb13-cloud-amd64-unsigned",
        ),
        (
            ["linux-image-6.12.1+deb13-cloud-amd64-unsigned", "linux-image-6.12.48+deb13-cloud-amd64"],
            "linux-image-6.12.48+deb13-cloud-amd64",
        ),
        (
            [
                "linux-image-6.12-cloud-amd64",
                "linux-image-6.1.0-57-cloud-amd64",
                "linux-image-6.12.48+deb13-cloud-arm64",
                "linux-image-6.12.48+deb13-cloud-amd64-dbg",
                "linux-image-6.12.48+deb13-amd64",
            ],
            None,
        ),
    ],
)
def test_newest_cloud_kernel_of_the_architecture_is_chosen(names: list[str], newest: str | None) -> None:
    assert host.newest_kernel(names, BOOKWORM, X86) == newest


def test_arm64_kernel_has_its_own_name() -> None:
    names = ["linux-image-6.12.48+deb13-cloud-arm64", "linux-image-6.12.48+deb13-cloud-amd64"]
    assert host.newest_kernel(names, BOOKWORM, ARM) == names[0]


def test_ubuntu_keeps_modules_in_a_package_of_their_own() -> None:
    names = [
        "linux-image-6.8.0-9-generic",
        "linux-image-6.8.0-60-generic",
        "linux-image-generic",
        "linux-image-unsigned-6.8.0-31-generic",
    ]
    kernel = host.newest_kernel(names, NOBLE, X86)
    assert kernel == "linux-image-6.8.0-60-generic"
    assert host.modules_package(kernel, NOBLE) == "linux-modules-6.8.0-60-generic"
    assert host.modules_package("linux-image-unsigned-6.8.0-31-generic", NOBLE) == "linux-modules-6.8.0-31-generic"
    assert host.modules_package("linux-image-x", BOOKWORM) is None


def test_unknown_system_is_named_with_the_known_ones() -> None:
    with pytest.raises(HostUnknown, match=r"Plan 9 is not .*Debian 12, Debian 13, Ubuntu 24.04"):
        host.find_distribution({"ID": "plan9", "PRETTY_NAME": "Plan 9"})


def test_missing_commands_come_with_their_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in host.required_commands(X86).keys() - {"nft", "qemu-system-x86_64"}:
        (tmp_path / command).touch(mode=0o755)
    monkeypatch.setattr(host, "SYSTEM_PATH", (str(tmp_path),))
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    assert host.missing_commands(X86) == {"nft": "nftables", "qemu-system-x86_64": "qemu-system-x86"}


def _listing(*rows: str) -> str:
    return "".join(row.replace(" ", "\t") + "\n" for row in rows)


def test_sources_of_the_release_are_taken_with_their_pockets() -> None:
    listing = _listing(
        "Debian bookworm stable main mirror://a/",
        "Debian bookworm stable contrib mirror://a/",
        "Debian bookworm-updates bookworm-updates main mirror://a/",
        "Debian bookworm-security bookworm-security main mirror://s/",
        "Debian bookworm-backports bookworm-backports main mirror://a/",
        "Debian trixie trixie main mirror://a/",
        "Somebody bookworm bookworm main mirror://x/",
        "garbage",
    )
    found = parse_sources(listing, BOOKWORM, "bookworm")
    assert [(source.uri, source.suite, source.components) for source in found] == [
        ("mirror://a/", "bookworm", ("main",)),
        ("mirror://a/", "bookworm-updates", ("main",)),
        ("mirror://s/", "bookworm-security", ("main",)),
    ]


def test_ubuntu_pockets_are_read_from_the_release() -> None:
    listing = _listing(
        "Ubuntu noble noble main mirror://a/",
        "Ubuntu noble noble universe mirror://a/",
        "Ubuntu noble noble-security main mirror://s/",
    )
    found = parse_sources(listing, NOBLE, "noble")
    assert [(source.suite, source.components) for source in found] == [
        ("noble", ("main", "universe")),
        ("noble-security", ("main",)),
    ]


def test_sources_are_rewritten_for_another_release() -> None:
    listing = _listing(
        "Debian bookworm bookworm main mirror://a/", "Debian bookworm-security bookworm-security main mirror://s/"
    )
    found = parse_sources(listing, BOOKWORM, "trixie")
    assert [source.suite for source in found] == ["trixie", "trixie-security"]
