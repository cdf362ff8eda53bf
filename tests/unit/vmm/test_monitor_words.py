"""What a monitor says or leaves is believed only as far as it makes sense: its guest may have taken it over."""

import os
from pathlib import Path

import pytest

from agentenv.vmm.errors import CaptureFailed
from agentenv.vmm.qemu import device_state
from agentenv.vmm.qemu.ram import parse_address


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "monitor").mkdir()
    return tmp_path


def test_address_of_the_memory_is_read() -> None:
    assert parse_address("Host virtual address for 0x0 (ram) is 0x7f3a00000000\r\n") == 0x7F3A00000000


@pytest.mark.parametrize(
    "answer",
    [None, 7, "", "No memory is mapped at address 0x0", "Host virtual address for 0x0 (bios) is 0x7f00\n", "0x" * 9999],
)
def test_other_words_are_no_address(answer: object) -> None:
    with pytest.raises(CaptureFailed, match="does not say where"):
        parse_address(answer)


def test_state_is_moved_to_a_file_of_ours(directory: Path) -> None:
    (directory / device_state.SAVED_STATE).write_bytes(b"state")

    device_state.take(directory, directory / "target")

    assert (directory / "target").read_bytes() == b"state"
    assert (directory / "target").stat().st_mode & 0o777 == 0o600
    assert list((directory / "monitor").iterdir()) == []


def test_link_pipe_and_emptiness_are_no_state(directory: Path) -> None:
    left = directory / device_state.SAVED_STATE
    secret = directory / "secret"
    secret.write_bytes(b"of the host")
    with pytest.raises(CaptureFailed, match="left no state"):
        device_state.take(directory, directory / "target")
    left.symlink_to(secret)
    with pytest.raises(CaptureFailed, match="left no state"):
        device_state.take(directory, directory / "target")
    left.unlink()
    os.mkfifo(left)
    with pytest.raises(CaptureFailed, match="is no state"):
        device_state.take(directory, directory / "target")
    left.unlink()
    left.touch()
    with pytest.raises(CaptureFailed, match="is no state"):
        device_state.take(directory, directory / "target")
    left.write_bytes(b"x")
    os.truncate(left, 2**40)
    with pytest.raises(CaptureFailed, match="is no state"):
        device_state.take(directory, directory / "target")

    assert not (directory / "target").exists()


def test_file_of_somebody_else_is_not_replaced(directory: Path) -> None:
    (directory / device_state.SAVED_STATE).write_bytes(b"state")
    (directory / "target").write_bytes(b"theirs")

    with pytest.raises(FileExistsError):
        device_state.take(directory, directory / "target")

    assert (directory / "target").read_bytes() == b"theirs"
