"""Group I: `files` of the Python clients."""

import io
from typing import Any

import pytest
from e2b import (
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotEnoughSpaceException,
)

line = pytest.mark.line
ODD_NAMES = ["a b", "a+b", "100%25", "a#b", "ü☃", "quote\"'", "semi;colon", "a&b=c", "back\\slash"]


@line("I01")
@pytest.mark.parametrize("content", ["text ☃\n", b"\x00\xff bytes", "", b""])
def test_what_was_written_is_read(sandbox: Any, directory: str, content: str | bytes) -> None:
    sandbox.files.write(f"{directory}/file", content)
    raw = content.encode() if isinstance(content, str) else content
    assert bytes(sandbox.files.read(f"{directory}/file", format="bytes")) == raw
    if isinstance(content, str):
        assert sandbox.files.read(f"{directory}/file") == content


@line("I02")
def test_shorter_content_leaves_no_tail(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/file", "a long text")
    sandbox.files.write(f"{directory}/file", "short")
    assert sandbox.files.read(f"{directory}/file") == "short"


@line("I03", "I14")
def test_missing_directories_are_made_for_the_user(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/a/b/c.txt", "deep")
    for path in ("a", "a/b"):
        entry = sandbox.files.get_info(f"{directory}/{path}")
        assert (entry.type, entry.owner, entry.group) == (FileType.DIR, "user", "user")
        assert (entry.mode, entry.permissions) == (0o755, "drwxr-xr-x")


@line("I04", "I05")
def test_a_relative_path_is_below_the_home(sandbox: Any) -> None:
    written = sandbox.files.write("contract-relative.txt", "x")
    assert (written.path, written.name) == ("/home/user/contract-relative.txt", "contract-relative.txt")
    assert written.type is FileType.FILE
    sandbox.files.remove("contract-relative.txt")


@line("I06")
def test_many_files_go_in_one_request(sandbox: Any, directory: str) -> None:
    names = ["plain", "sub/dir/file", "ü ☃", 'with "quotes"', "semi;colon", "trailing "]
    entries = [{"path": f"{directory}/{name}", "data": f"content of {name}"} for name in names]
    written = sandbox.files.write_files(entries)
    assert [info.path for info in written] == [entry["path"] for entry in entries]
    for entry in entries:
        assert sandbox.files.read(entry["path"]) == entry["data"]


@line("I07")
def test_writing_nothing_is_no_request(sandbox: Any) -> None:
    assert sandbox.files.write_files([]) == []


@line("I08")
@pytest.mark.newest
def test_streams_are_uploaded_as_they_come(sandbox: Any, directory: str) -> None:
    block = bytes(range(256)) * 256
    sandbox.files.write(f"{directory}/from-file", io.BytesIO(block * 16))
    sandbox.files.write(f"{directory}/from-iterable", (block for _ in range(16)))
    digests = sandbox.commands.run(f"cd {directory}; md5sum <from-file; md5sum <from-iterable; stat -c %s *").stdout
    first, second, *sizes = digests.splitlines()
    assert first == second
    assert sizes == ["1048576", "1048576"]


@line("I08")
@pytest.mark.once
def test_a_gibibyte_passes_the_daemon_in_constant_memory(tokened: Any) -> None:
    block = b"\x5a" * (1 << 20)
    daemon = "/proc/$(pgrep -o -x aenv-guest)"
    tokened.commands.run(f"echo 5 > {daemon}/clear_refs", user="root")  # forgets the highest size so far
    tokened.files.write("/var/tmp/gibibyte", (block for _ in range(1024)), user="root", request_timeout=500)
    assert tokened.commands.run("stat -c %s /var/tmp/gibibyte").stdout == f"{1 << 30}\n"
    assert int(tokened.commands.run(f"awk '/^VmHWM/ {{print $2}}' {daemon}/status").stdout) < 16 << 10
    tokened.files.remove("/var/tmp/gibibyte")


@line("I09")
@pytest.mark.newest
def test_compressed_transfers_carry_the_same_bytes(sandbox: Any, directory: str) -> None:
    content = "compress me " * 10_000
    sandbox.files.write(f"{directory}/file", content, gzip=True)
    assert sandbox.commands.run(f"stat -c %s {directory}/file").stdout == f"{len(content)}\n"
    assert sandbox.files.read(f"{directory}/file", gzip=True) == content


@line("I10")
def test_reading_what_is_no_file_is_an_error_of_its_kind(sandbox: Any, directory: str) -> None:
    with pytest.raises(FileNotFoundException):
        sandbox.files.read(f"{directory}/missing")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read(directory)


@line("I11")
def test_a_stream_can_be_left_early(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/file", b"x" * (4 << 20))
    assert sum(len(chunk) for chunk in sandbox.files.read(f"{directory}/file", format="stream")) == 4 << 20
    stream = sandbox.files.read(f"{directory}/file", format="stream")
    assert next(iter(stream))
    close = getattr(stream, "close", None) or stream.aclose
    close()
    assert sandbox.files.exists(f"{directory}/file")


@line("I12", "I13")
def test_a_file_belongs_to_who_writes_it(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/mine", "x")
    sandbox.files.write(f"{directory}/roots", "x", user="root")
    mine, roots = sandbox.files.get_info(f"{directory}/mine"), sandbox.files.get_info(f"{directory}/roots")
    assert (mine.owner, mine.group, mine.mode, mine.permissions) == ("user", "user", 0o644, "-rw-r--r--")
    assert (roots.owner, roots.group) == ("root", "root")
    assert sandbox.files.read(f"{directory}/roots") == "x"


@line("I15")
def test_what_is_missing_does_not_exist(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/file", "x")
    assert sandbox.files.exists(f"{directory}/file")
    assert not sandbox.files.exists(f"{directory}/missing")
    with pytest.raises(FileNotFoundException):
        sandbox.files.get_info(f"{directory}/missing")


@line("I16")
def test_times_have_a_zone(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/file", "12345")
    entry = sandbox.files.get_info(f"{directory}/file")
    now = float(sandbox.commands.run("date +%s.%N").stdout)
    assert entry.modified_time.tzinfo is not None
    assert abs(entry.modified_time.timestamp() - now) < 60
    assert entry.size == 5


@line("I17", "I18")
def test_a_link_is_described_by_its_target(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/target", "x")
    sandbox.commands.run(f"cd {directory}; ln -s target link; mkdir sub; ln -s sub dirlink")
    entry = sandbox.files.get_info(f"{directory}/link")
    # Old clients know no type for links and show the target's.
    assert entry.type.value in {"symlink", "file"}
    assert entry.symlink_target == f"{directory}/target"
    assert (entry.mode, entry.permissions) == (0o644, "Lrwxrwxrwx")
    assert sandbox.files.get_info(f"{directory}/dirlink").symlink_target == f"{directory}/sub"


@line("I18")
@pytest.mark.newest
def test_a_link_is_known_as_one(sandbox: Any, directory: str) -> None:
    sandbox.commands.run(f"touch {directory}/target; ln -s target {directory}/link")
    assert sandbox.files.get_info(f"{directory}/link").type is FileType.SYMLINK
    assert sandbox.files.get_info(f"{directory}/target").type is FileType.FILE


@line("I19")
def test_a_broken_link_exists_but_is_not_listed(sandbox: Any, directory: str) -> None:
    sandbox.commands.run(f"ln -s nowhere {directory}/broken; touch {directory}/whole")
    assert sandbox.files.exists(f"{directory}/broken")
    listed = [entry.name for entry in sandbox.files.list(directory)]
    assert "whole" in listed
    assert "broken" not in listed or sandbox.files.get_info(f"{directory}/broken").type.value == "symlink"


@line("I20")
def test_a_list_is_depth_first_and_sorted(sandbox: Any, directory: str) -> None:
    sandbox.commands.run(f"cd {directory}; mkdir -p b/y/z a/x; touch b/1 a/x/2 c b/y/z/3; ln -s {directory} ../alias")

    def listed(depth: int, base: str = directory) -> list[str]:
        return [entry.path.removeprefix(f"{base}/") for entry in sandbox.files.list(base, depth=depth)]

    assert listed(1) == ["a", "b", "c"]
    assert listed(2) == ["a", "a/x", "b", "b/1", "b/y", "c"]
    assert listed(3) == ["a", "a/x", "a/x/2", "b", "b/1", "b/y", "b/y/z", "c"]
    alias = directory.rpartition("/")[0] + "/alias"
    assert listed(1, alias) == ["a", "b", "c"]
    sandbox.files.remove(alias)
    with pytest.raises(InvalidArgumentException):
        sandbox.files.list(directory, depth=0)


@line("I21")
def test_a_list_of_no_directory_is_an_error_of_its_kind(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/file", "x")
    with pytest.raises(FileNotFoundException):
        sandbox.files.list(f"{directory}/missing")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.list(f"{directory}/file")


@line("I22")
def test_a_directory_is_made_once(sandbox: Any, directory: str) -> None:
    assert sandbox.files.make_dir(f"{directory}/a/b/c")
    assert not sandbox.files.make_dir(f"{directory}/a/b/c")
    sandbox.files.write(f"{directory}/file", "x")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.make_dir(f"{directory}/file")


@line("I23")
def test_a_rename_moves_replaces_and_makes_parents(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/from", "new")
    sandbox.files.write(f"{directory}/to", "old")
    moved = sandbox.files.rename(f"{directory}/from", f"{directory}/to")
    assert (moved.path, moved.name, moved.type) == (f"{directory}/to", "to", FileType.FILE)
    assert sandbox.files.read(f"{directory}/to") == "new"
    assert not sandbox.files.exists(f"{directory}/from")

    assert sandbox.files.rename(f"{directory}/to", f"{directory}/x/y/to").path == f"{directory}/x/y/to"
    with pytest.raises(FileNotFoundException):
        sandbox.files.rename(f"{directory}/missing", f"{directory}/anywhere")


@line("I24")
def test_removal_is_deep_and_forgiving(sandbox: Any, directory: str) -> None:
    sandbox.files.write(f"{directory}/a/b/c", "x")
    sandbox.files.remove(f"{directory}/a")
    assert not sandbox.files.exists(f"{directory}/a")
    sandbox.files.remove(f"{directory}/a")


@line("I25")
@pytest.mark.newest
@pytest.mark.parametrize("use_octet_stream", [False, True])
def test_metadata_stays_with_a_file_until_it_is_written_anew(
    sandbox: Any, directory: str, use_octet_stream: bool
) -> None:
    path, how = f"{directory}/file", {"use_octet_stream": use_octet_stream}
    written = sandbox.files.write(path, "x", metadata={"Author": "me", "purpose": "a b"}, **how)
    expected = {"author": "me", "purpose": "a b"}
    assert written.metadata == expected
    assert sandbox.files.get_info(path).metadata == expected
    assert [entry.metadata for entry in sandbox.files.list(directory)] == [expected]
    assert sandbox.files.rename(path, f"{path}2").metadata == expected
    assert not sandbox.files.write(f"{path}2", "y", **how).metadata
    assert not sandbox.files.get_info(f"{path}2").metadata


@line("I26")
@pytest.mark.newest
def test_metadata_set_inside_is_seen_outside(sandbox: Any, directory: str) -> None:
    script = f"import os; os.setxattr('{directory}/file', 'user.e2b.author', b'inside')"
    sandbox.files.write(f"{directory}/file", "x")
    sandbox.commands.run(f'python3 -c "{script}"')
    assert sandbox.files.get_info(f"{directory}/file").metadata == {"author": "inside"}


@line("I32")
def test_a_full_disk_is_told_as_such(sandbox: Any, place: Any) -> None:
    if place.name == "machine":
        sandbox.commands.run("mkdir -p /small; mount -t tmpfs -o size=64k,mode=1777 tmpfs /small", user="root")
    with pytest.raises(NotEnoughSpaceException):
        sandbox.files.write("/small/file", b"x" * (256 << 10))
    sandbox.commands.run("rm -f /small/*", user="root")
    sandbox.files.write("/small/file", "fits again")
    if place.name == "machine":
        sandbox.commands.run("umount /small", user="root")


@line("I34")
@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_survive(sandbox: Any, directory: str, name: str) -> None:
    written = sandbox.files.write(f"{directory}/{name}", name)
    assert written.path == f"{directory}/{name}"
    assert sandbox.files.read(f"{directory}/{name}") == name
    assert [entry.name for entry in sandbox.files.list(directory)] == [name]
    assert sandbox.commands.run(f"ls -N {directory}").stdout == f"{name}\n"


@line("I35")
def test_a_tilde_is_the_home(sandbox: Any) -> None:
    assert sandbox.files.write("~/.contract-tilde", "x").path == "/home/user/.contract-tilde"
    assert sandbox.files.exists("~/.contract-tilde")
    sandbox.files.remove("~/.contract-tilde")
    assert sandbox.files.write("~/.contract-tilde", "x", user="root").path == "/root/.contract-tilde"
