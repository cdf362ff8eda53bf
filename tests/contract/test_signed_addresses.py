"""Group I: file addresses that carry their own permission, used by a client that knows nothing else."""

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from contract.places import Place
from contract.raw import ask, routing

pytestmark = [pytest.mark.vm, pytest.mark.newest]
line = pytest.mark.line
Fetch = Callable[..., tuple[int, bytes]]


@pytest.fixture
def target(tokened: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """A path with a space in it, which holds `content`."""
    path = f"/home/user/signed {abs(hash(request.node.nodeid))}"
    tokened.files.write(path, "content")
    yield path
    tokened.files.remove(path)


@pytest.fixture
def fetch(machine: Place) -> Fetch:
    """Return a function that asks for a signed address; only the host, which needs a DNS of its own, is replaced."""

    def ask_for(url: str, *, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        parts = urlsplit(url)
        sent = routing(machine.sandbox_id) | (headers or {})
        method = "GET" if body is None else "POST"
        answer = ask(machine.url, method, f"{parts.path}?{parts.query}", headers=sent, body=body)
        return answer.status, answer.body

    return ask_for


def form(name: str, content: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a multipart body with one file, and its header."""
    head = f'--cut\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return head + content + b"\r\n--cut--\r\n", {"Content-Type": "multipart/form-data; boundary=cut"}


@line("I27")
def test_a_signature_opens_one_file_for_reading_and_writing(tokened: Any, target: str, fetch: Fetch) -> None:
    assert fetch(tokened.download_url(target)) == (200, b"content")
    body, headers = form("ignored", b"replaced")
    status, answer = fetch(tokened.upload_url(target), body=body, headers=headers)
    assert (status, json.loads(answer)[0]["path"]) == (200, target)
    assert tokened.files.read(target) == "replaced"
    with_expiration = tokened.download_url(target, use_signature_expiration=60)
    assert fetch(with_expiration) == (200, b"replaced")


@line("I28")
def test_an_expired_signature_is_told_as_such(tokened: Any, target: str, fetch: Fetch) -> None:
    expired = int(time.time()) - 10
    text = f"{target}:read::{tokened._envd_access_token}:{expired}"
    url = signed_url(target, text, signature_expiration=str(expired))
    assert fetch(url) == (401, b'{"code":401,"message":"signature is already expired"}')


def signed_url(path: str, text: str, **more: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    return "http://x/files?" + urlencode({"path": path, "signature": f"v1_{digest}", **more})


@line("I29")
def test_a_signature_opens_nothing_else(tokened: Any, target: str, fetch: Fetch) -> None:
    url = tokened.download_url(target)
    for changed in (
        url.replace("signed%20", "other%20").replace("signed+", "other+"),
        f"{url}&username=root",
        url.replace("signature=v1_", "signature=v1_A"),
    ):
        assert changed != url
        assert fetch(changed)[0] == 401
    body, headers = form("ignored", b"x")
    assert fetch(url, body=body, headers=headers)[0] == 401
    assert fetch(url, headers={"X-Access-Token": "wrong"})[0] == 401


@line("I30")
def test_without_a_path_the_file_name_is_the_target(tokened: Any, target: str, fetch: Fetch) -> None:
    body, headers = form("signed-dir/by-name", b"named")
    status, answer = fetch(tokened.upload_url(""), body=body, headers=headers)
    assert (status, json.loads(answer)[0]["path"]) == (200, "/home/user/signed-dir/by-name")
    assert tokened.files.read("signed-dir/by-name") == "named"
    tokened.files.remove("signed-dir")


@line("I31")
def test_a_part_of_a_file_can_be_asked_for(tokened: Any, target: str, fetch: Fetch) -> None:
    assert fetch(tokened.download_url(target), headers={"Range": "bytes=1-3"}) == (206, b"ont")
