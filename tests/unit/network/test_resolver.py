"""Which resolver guests get, from files as distributions write them."""

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from agentenv.network.resolver import find_resolvers


def files(directory: Path, *contents: str) -> list[Path]:
    paths = []
    for number, content in enumerate(contents):
        path = directory / f"resolv{number}.conf"
        path.write_text(content)
        paths.append(path)
    return paths


def test_the_first_nameserver_is_taken(tmp_path: Path) -> None:
    sources = files(tmp_path, "# made by hand\nsearch lan\nnameserver 10.0.0.1\nnameserver 10.0.0.2\n")
    found = find_resolvers((), sources)
    assert found.servers == (IPv4Address("10.0.0.1"),)
    assert found.source == str(sources[0])
    assert found.problem is None


def test_behind_a_stub_the_upstream_file_is_read(tmp_path: Path) -> None:
    sources = files(tmp_path, "nameserver 127.0.0.53\noptions edns0\n", "nameserver 192.168.1.1\n")
    assert find_resolvers((), sources).servers == (IPv4Address("192.168.1.1"),)


def test_what_guests_cannot_reach_is_passed_over(tmp_path: Path) -> None:
    lines = ["fd00::53", "fe80::1%eth0", "0.0.0.0", "127.0.0.11", "169.254.169.253", "not-an-address", "", "8.8.8.8"]
    sources = files(tmp_path, "".join(f"nameserver {line}\n" for line in lines))
    assert find_resolvers((), sources).servers == (IPv4Address("8.8.8.8"),)


@pytest.mark.parametrize("content", ["", "nameserver\n", "nameserver 127.0.0.1\n", "\x00\xff"])
def test_without_any_the_problem_says_what_to_do(tmp_path: Path, content: str) -> None:
    found = find_resolvers((), files(tmp_path, content))
    assert found.servers == ()
    assert "network.dns_servers" in str(found.problem)


def test_missing_files_are_no_resolver(tmp_path: Path) -> None:
    assert find_resolvers((), [tmp_path / "none"]).servers == ()


def test_settings_win_over_files(tmp_path: Path) -> None:
    chosen = (IPv4Address("9.9.9.9"), IPv4Address("1.1.1.1"))
    assert find_resolvers(chosen, files(tmp_path, "nameserver 10.0.0.1\n")).servers == chosen
