"""`files` of the official SDK, in a real VM."""

import io
import urllib.error
import urllib.request

import pytest
from e2b import FileNotFoundException, FileType, InvalidArgumentException, Sandbox

from support.server import Access


def test_text_and_bytes_come_back_as_they_were(sandbox: Sandbox) -> None:
    written = sandbox.files.write("files/text.txt", "ü\n")
    assert (written.path, written.name) == ("/home/user/files/text.txt", "text.txt")
    assert sandbox.files.read("files/text.txt") == "ü\n"

    content = bytes(range(256)) * 4096
    sandbox.files.write("files/bytes", content)
    assert bytes(sandbox.files.read("files/bytes", format="bytes")) == content

    sandbox.files.write("files/text.txt", "")
    assert sandbox.files.read("files/text.txt") == ""


def test_a_file_belongs_to_the_user_with_usual_modes(sandbox: Sandbox) -> None:
    sandbox.files.write("owned/deep/file", "x")
    info = sandbox.files.get_info("owned/deep/file")
    assert (info.owner, info.group, info.permissions, info.size) == ("user", "user", "-rw-r--r--", 1)
    assert sandbox.files.get_info("owned/deep").permissions == "drwxr-xr-x"
    sandbox.files.write("/root/by-root", "x", user="root")
    assert sandbox.files.get_info("/root/by-root", user="root").owner == "root"


def test_several_files_go_in_one_request(sandbox: Sandbox) -> None:
    names = ["many/a b.txt", 'many/quote".txt', "many/ü/c.txt"]
    written = sandbox.files.write_files([{"path": name, "data": name} for name in names])
    assert [one.path for one in written] == [f"/home/user/{name}" for name in names]
    assert [sandbox.files.read(name) for name in names] == names


def test_a_large_file_streams_both_ways(sandbox: Sandbox) -> None:
    content = bytes(range(256)) * 32 * 1024 * 4  # 32 MiB
    sandbox.files.write("large/file", io.BytesIO(content))
    assert sandbox.commands.run("wc -c < large/file").stdout.strip() == str(len(content))
    assert b"".join(sandbox.files.read("large/file", format="stream")) == content


def test_directories_are_made_listed_moved_and_removed(sandbox: Sandbox) -> None:
    assert sandbox.files.make_dir("tree/b")
    assert not sandbox.files.make_dir("tree/b")
    sandbox.files.write("tree/a.txt", "a")
    sandbox.files.write("tree/b/c.txt", "c")
    listed = sandbox.files.list("tree", depth=2)
    assert [entry.path.removeprefix("/home/user/tree/") for entry in listed] == ["a.txt", "b", "b/c.txt"]
    assert [entry.type for entry in listed] == [FileType.FILE, FileType.DIR, FileType.FILE]

    sandbox.files.rename("tree/a.txt", "tree/new/z.txt")
    assert not sandbox.files.exists("tree/a.txt")
    assert sandbox.files.read("tree/new/z.txt") == "a"
    sandbox.files.remove("tree")
    assert not sandbox.files.exists("tree")


def test_what_is_not_there_or_not_a_file_is_told_apart(sandbox: Sandbox) -> None:
    with pytest.raises(FileNotFoundException):
        sandbox.files.read("no/such/file")
    with pytest.raises(FileNotFoundException):
        sandbox.files.list("no/such/directory")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read("/tmp")


def test_a_watch_sees_a_new_file_at_once(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("watched")
    watch = sandbox.files.watch_dir("watched")
    sandbox.files.write("watched/new.txt", "x")
    events = watch.get_new_events()
    watch.stop()
    assert [(event.name, event.type.value) for event in events] == [
        ("new.txt", "create"),
        ("new.txt", "chmod"),
        ("new.txt", "write"),
    ]


def test_a_signed_url_needs_no_header_and_its_signature_counts(sandbox: Sandbox, access: Access) -> None:
    sandbox.files.write("signed.txt", "signed")
    url = sandbox.download_url("signed.txt", use_signature_expiration=60)
    query = url.partition("?")[2]
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}

    def fetch(text: str) -> bytes:
        request = urllib.request.Request(f"{access['sandbox_url']}/files?{text}", headers=headers)
        with urllib.request.urlopen(request) as answer:
            content: bytes = answer.read()
            return content

    assert fetch(query) == b"signed"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        fetch(query.replace("signed.txt", "other.txt"))
