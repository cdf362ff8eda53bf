"""The directory of a machine: a monitor may have left anything in its own room of it."""

from pathlib import Path

from agentenv.vmm.qemu import directory


def test_whatever_lies_in_the_place_of_the_control_socket_is_no_error(tmp_path: Path) -> None:
    directory.remove_sockets(tmp_path / "missing")
    (tmp_path / "monitor" / "qmp.sock" / "inside").mkdir(parents=True)
    directory.remove_sockets(tmp_path)


def test_a_link_in_the_place_of_the_control_socket_is_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "of-another").touch()
    (tmp_path / "monitor").mkdir()
    (tmp_path / "monitor" / "qmp.sock").symlink_to(tmp_path / "of-another")

    directory.remove_sockets(tmp_path)

    assert not (tmp_path / "monitor" / "qmp.sock").is_symlink()
    assert (tmp_path / "of-another").exists()
