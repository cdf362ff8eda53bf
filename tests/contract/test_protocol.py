"""Groups A, G, I and J: what only a raw client sees of the daemon."""

import socket
import time
from urllib.parse import urlsplit

import pytest
from e2b import Sandbox

from contract.places import Place
from contract.raw import Answer, Headers, ask, envelope, envelopes, routing

pytestmark = pytest.mark.newest
line = pytest.mark.line
STREAM = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
ECHO = {"process": {"cmd": "/bin/sh", "args": ["-c", "echo hi"]}, "stdin": False}


@pytest.fixture(scope="session")
def way(place: Place) -> Headers:
    """The headers that lead to the daemon and open it."""
    if place.namespace:
        return {}
    token = Sandbox.connect(place.sandbox_id, **place.options)._envd_access_token
    return routing(place.sandbox_id, token=str(token))


def start(place: Place, way: Headers, message: object, **headers: str) -> Answer:
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(place.url, "POST", "/process.Process/Start", headers=way | STREAM | more, body=envelope(message))


def assert_is_rpc_error(answer: Answer, status: int, code: str) -> None:
    assert (answer.status, answer.document["code"]) == (status, code)
    assert answer.headers["content-type"].startswith("application/json")


@line("G01")
def test_a_stream_is_framed_to_the_letter(place: Place, way: Headers) -> None:
    answer = start(place, way, ECHO, Accept_Encoding="gzip, zstd, br")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/connect+json")
    messages = envelopes(answer.body)
    kinds = [next(iter(message["event"])) for flags, message in messages if flags == 0]
    assert kinds == ["start", "data", "end"]
    assert messages[1][1]["event"]["data"] == {"stdout": "aGkK"}
    assert messages[2][1]["event"]["end"]["status"] == "exit status 0"
    assert messages[-1] == (2, {})


@line("G06")
def test_a_late_end_of_the_request_costs_no_output(place: Place, way: Headers) -> None:
    where = urlsplit(place.url)
    process = {"cmd": "/bin/sh", "args": ["-c", "head -c 1000000 /dev/zero"]}
    body = envelope({"process": process, "stdin": False})
    lines = {"Host": "x", "Transfer-Encoding": "chunked", **way, **STREAM}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    with socket.socket() as connection:
        # With little room here, the last of the output still waits in the daemon's kernel when the answer is over.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect((where.hostname, where.port))
        connection.sendall(f"POST /process.Process/Start HTTP/1.1\r\n{head}\r\n{len(body):x}\r\n".encode() + body)
        whole = connection.recv(12)
        assert whole == b"HTTP/1.1 200"
        connection.sendall(b"\r\n0\r\n\r\n")
        while not whole.endswith(b"\x02\x00\x00\x00\x02{}\r\n0\r\n\r\n"):
            piece = connection.recv(1000)
            assert piece, "the answer broke off"
            whole += piece
    assert len(whole) > 1_333_333


@line("A17")
def test_rpc_answers_are_never_compressed(place: Place, way: Headers) -> None:
    headers = way | {"Accept-Encoding": "gzip, br, zstd", "Content-Encoding": "identity"}
    answer = ask(place.url, "POST", "/process.Process/List", headers=headers, body={})
    assert answer.status == 200
    assert "content-encoding" not in answer.headers
    assert isinstance(answer.document, dict)


@line("A19")
def test_a_browser_may_call(place: Place, way: Headers) -> None:
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    answer = ask(place.url, "OPTIONS", "/process.Process/Start", headers=way | asked)
    assert answer.status in {200, 204}
    assert answer.headers["access-control-allow-origin"] in {"*", "https://page.example"}


@line("G33")
def test_a_deadline_that_is_no_number_is_refused(place: Place, way: Headers) -> None:
    answer = start(place, way, ECHO, Connect_Timeout_Ms="soon")
    code = envelopes(answer.body)[-1][1]["error"]["code"] if answer.status == 200 else answer.document["code"]
    assert code == "invalid_argument"


@line("G14", "G15")
def test_a_signal_to_nobody_is_not_found(place: Place, way: Headers) -> None:
    message = {"process": {"pid": 4_000_000}, "signal": "SIGNAL_SIGKILL"}
    answer = ask(place.url, "POST", "/process.Process/SendSignal", headers=way, body=message)
    assert_is_rpc_error(answer, 404, "not_found")
    message["signal"] = "SIGNAL_SIGSTOP"
    assert ask(place.url, "POST", "/process.Process/SendSignal", headers=way, body=message).status >= 400


@line("J07")
def test_the_events_of_a_removed_watch_are_not_found(place: Place, way: Headers) -> None:
    def call(method: str, message: object) -> Answer:
        return ask(place.url, "POST", f"/filesystem.Filesystem/{method}", headers=way, body=message)

    watcher = {"watcherId": call("CreateWatcher", {"path": "/tmp"}).document["watcherId"]}
    assert call("GetWatcherEvents", watcher).document.get("events", []) == []
    assert call("RemoveWatcher", watcher).status == 200
    assert_is_rpc_error(call("GetWatcherEvents", watcher), 404, "not_found")


@line("J11")
def test_a_watched_stream_begins_with_its_start(place: Place, way: Headers) -> None:
    headers = way | STREAM | {"Connect-Timeout-Ms": "500"}
    answer = ask(place.url, "POST", "/filesystem.Filesystem/WatchDir", headers=headers, body=envelope({"path": "/tmp"}))
    messages = envelopes(answer.body)
    assert messages[0] == (0, {"start": {}})
    assert messages[-1][0] == 2
    assert messages[-1][1]["error"]["code"] == "deadline_exceeded"


@line("I33")
def test_one_path_twice_in_an_upload_is_refused(place: Place, way: Headers) -> None:
    part = '--cut\r\nContent-Disposition: form-data; name="file"; filename="/tmp/twice"\r\n\r\nx\r\n'
    headers = way | {"Content-Type": "multipart/form-data; boundary=cut"}
    answer = ask(place.url, "POST", "/files", headers=headers, body=f"{part}{part}--cut--\r\n".encode())
    assert (answer.status, answer.document["code"]) == (400, 400)


@line("P02")
def test_dots_in_paths_lead_nowhere_else(place: Place, way: Headers) -> None:
    answer = ask(place.url, "GET", "/files?path=../../../../../etc/hostname", headers=way)
    direct = ask(place.url, "GET", "/files?path=/etc/hostname", headers=way)
    assert (answer.status, answer.body) == (direct.status, direct.body)
    assert direct.status == 200


@line("P05")
def test_a_client_that_reads_nothing_holds_up_nobody(place: Place, way: Headers) -> None:
    where = urlsplit(place.url)
    body = envelope({"process": {"cmd": "/bin/sh", "args": ["-c", "yes"]}, "stdin": False})
    lines = {**way, **STREAM, "Content-Length": str(len(body)), "Connect-Timeout-Ms": "20000"}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    with socket.create_connection((where.hostname, where.port), timeout=30) as silent:
        silent.sendall(f"POST /process.Process/Start HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode() + body)
        assert silent.recv(10)
        assert start(place, way, ECHO).status == 200


@line("G33")
@pytest.mark.parametrize(
    "body", [b"", b"\x00\x00", b"\x00\xff\xff\xff\xff{}", envelope({"process": 7}), b"\x01\x00\x00\x00\x02{}"]
)
def test_broken_envelopes_are_refused_and_harm_nobody(place: Place, way: Headers, body: bytes) -> None:
    answer = ask(place.url, "POST", "/process.Process/Start", headers=way | STREAM, body=body)
    if answer.status == 200:
        assert "error" in envelopes(answer.body)[-1][1]
    else:
        assert 400 <= answer.status < 500
    assert start(place, way, ECHO).status == 200


@line("I36")
def test_an_upload_that_falls_silent_is_ended_after_a_minute(place: Place, way: Headers) -> None:
    address = urlsplit(place.url)
    with socket.create_connection((str(address.hostname), address.port or 80), timeout=90) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in way.items())
        head += "Host: guest\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n"
        connection.sendall(f"POST /files?path=/tmp/silent HTTP/1.1\r\n{head}\r\nbegun".encode())
        began = time.monotonic()
        answer = connection.recv(65536)
        assert 55 < time.monotonic() - began < 75
        assert answer.startswith(b"HTTP/1.1 408 ")
        while answer:
            answer = connection.recv(65536)
