"""Groups A, B, F and P: what only a raw client sees of the server's door."""

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import pytest
from e2b import Sandbox

from contract import raw
from contract.places import DOMAIN, Place
from contract.raw import Answer, ask, routing

pytestmark = [pytest.mark.vm, pytest.mark.newest]
line = pytest.mark.line
PORT, LOOPBACK_PORT = 3100, 3101
SERVER = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        if self.path == "/stream":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\\r\\nfirst\\r\\n")
            self.rfile.read(1)
            return
        body = (self.path + "\\n" + str(self.headers)).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler)
print("serving", flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def key(machine: Place) -> dict[str, str]:
    """The header that opens the control plane."""
    return {"X-API-KEY": machine.options["api_key"]}


@pytest.fixture(scope="module")
def shared(machine: Place) -> Sandbox:
    """The shared sandbox through the synchronous client."""
    return Sandbox.connect(machine.sandbox_id, **machine.options)


@pytest.fixture(scope="module")
def web(shared: Sandbox) -> Iterator[str]:
    """Two web servers in the shared sandbox, one of them on the guest's loopback; yields the sandbox's id."""
    with serving(shared, "0.0.0.0", PORT), serving(shared, "127.0.0.1", LOOPBACK_PORT):
        yield shared.sandbox_id


@contextmanager
def serving(sandbox: Sandbox, host: str, port: int) -> Iterator[None]:
    sandbox.files.write("door.py", SERVER)
    handle = sandbox.commands.run(f"exec python3 door.py {host} {port}", background=True, timeout=0)
    assert next(iter(handle))[0] == "serving\n"
    handle.disconnect()
    yield
    sandbox.commands.kill(handle.pid)


def assert_is_error(answer: Answer, status: int) -> None:
    assert answer.status == status
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.document["code"] == status
    assert isinstance(answer.document["message"], str)


@line("A03")
def test_a_missing_key_is_refused_and_its_header_has_no_case(machine: Place) -> None:
    assert_is_error(ask(machine.url, "GET", "/v2/sandboxes"), 401)
    for name in ("x-api-key", "X-Api-Key", "X-API-KEY"):
        assert ask(machine.url, "GET", "/v2/sandboxes", headers={name: machine.options["api_key"]}).status == 200


@line("A07", "C15")
@pytest.mark.parametrize("path", ["/health", "/metrics", "/sandboxes", "/templates"])
def test_routing_headers_beat_paths(machine: Place, path: str) -> None:
    answer = ask(machine.url, "GET", path, headers=routing("i0000000000000000000"))
    assert_is_error(answer, 502)
    assert "was not found" in answer.document["message"]


@line("A10", "B15")
def test_unknown_fields_are_ignored_and_the_first_generation_works(machine: Place, key: dict[str, str]) -> None:
    body = {"templateID": "base", "timeout": 60, "secure": True, "somethingNew": {"a": [1]}}
    answer = ask(machine.url, "POST", "/sandboxes", headers=key, body=body)
    assert answer.status == 201
    made = answer.document
    assert {"templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken"} <= made.keys()
    assert ask(machine.url, "DELETE", f"/sandboxes/{made['sandboxID']}", headers=key).status == 204
    assert_is_error(ask(machine.url, "DELETE", f"/sandboxes/{made['sandboxID']}", headers=key), 404)


@line("A12", "B18")
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/no/such/route", None, 404),
        ("PATCH", "/v2/sandboxes", None, 405),
        ("POST", "/v2/sandboxes", b"{not json", 400),
        ("POST", "/v2/sandboxes", {"templateID": 7}, 400),
        ("POST", "/v2/sandboxes", [], 400),
        ("POST", "/v2/sandboxes", {}, 400),
        ("POST", "/v2/sandboxes", {"templateID": "base", "autoPauseMemory": False}, 400),
        ("GET", "/v2/sandboxes?limit=0", None, 400),
        ("GET", "/v2/sandboxes?limit=many", None, 400),
        ("GET", "/v2/sandboxes?nextToken=%00broken", None, 400),
        ("GET", "/v2/sandboxes?state=asleep", None, 400),
        ("GET", "/sandboxes/unknown", None, 404),
    ],
)
def test_every_refusal_is_json(
    machine: Place, key: dict[str, str], method: str, path: str, body: object, status: int
) -> None:
    assert_is_error(ask(machine.url, method, path, headers=key, body=body), status)


@line("C08")
def test_a_page_token_that_was_never_given_is_refused(machine: Place, key: dict[str, str]) -> None:
    assert_is_error(ask(machine.url, "GET", "/v2/sandboxes?nextToken=invented", headers=key), 400)


@line("P04")
def test_an_oversized_body_is_refused(machine: Place, key: dict[str, str]) -> None:
    body = b'{"templateID": "base", "metadata": {"k": "' + b"x" * (8 << 20) + b'"}}'
    assert_is_error(ask(machine.url, "POST", "/v2/sandboxes", headers=key, body=body), 413)


@line("A18")
def test_path_parameters_are_decoded_once(machine: Place, key: dict[str, str]) -> None:
    answer = ask(machine.url, "GET", "/templates/aliases/ns%2Fna%2520me", headers=key)
    assert_is_error(answer, 404)
    assert "ns/na%20me" in answer.document["message"]


@line("D03")
def test_a_connection_to_a_running_sandbox_is_200(machine: Place, key: dict[str, str]) -> None:
    for generation in ("", "/v2"):
        path = f"{generation}/sandboxes/{machine.sandbox_id}/connect"
        answer = ask(machine.url, "POST", path, headers=key, body={"timeout": 10})
        assert (answer.status, answer.document["sandboxID"]) == (200, machine.sandbox_id)


@line("F11", "F16", "A06", "F26")
def test_a_port_is_reached_by_headers_and_by_host(machine: Place, web: str) -> None:
    named = {"Host": f"{PORT}-{web}.{DOMAIN}"}
    for headers in (routing(web, PORT), named):
        answer = ask(machine.url, "GET", "/a%2Fb?c=%20", headers={**headers, "X-API-KEY": machine.options["api_key"]})
        assert (answer.status, answer.body.splitlines()[0]) == (200, b"/a%2Fb?c=%20")
        assert machine.options["api_key"].encode() not in answer.body


@line("F17")
def test_a_port_on_the_guests_loopback_is_reached(machine: Place, web: str) -> None:
    deadline = time.monotonic() + 20
    # The daemon looks for new listeners about once a second.
    while ask(machine.url, "GET", "/", headers=routing(web, LOOPBACK_PORT)).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@line("F18")
def test_a_closed_port_is_told_as_such(machine: Place) -> None:
    answer = ask(machine.url, "GET", "/", headers=routing(machine.sandbox_id, 3999))
    assert_is_error(answer, 502)
    assert "port is not open" in answer.document["message"]


@line("F21")
def test_a_stream_is_not_held_back(machine: Place, web: str) -> None:
    with closing(http.client.HTTPConnection(urlsplit(machine.url).netloc, timeout=30)) as connection:
        connection.request("GET", "/stream", headers=routing(web, PORT))
        # The server sends nothing more until this client does, so a buffering proxy would wait for ever.
        assert connection.getresponse().read1(5) == b"first"


@line("F10", "F12", "F26")
def test_a_private_sandbox_wants_its_traffic_token(machine: Place, key: dict[str, str]) -> None:
    network = {"allowPublicTraffic": False, "maskRequestHost": "masked.example:${PORT}"}
    body = {"templateID": "base", "timeout": 120, "network": network}
    made = ask(machine.url, "POST", "/v2/sandboxes", headers=key, body=body).document
    token, sandbox_id = made["trafficAccessToken"], made["sandboxID"]
    private = Sandbox.connect(sandbox_id, **machine.options)
    try:
        with serving(private, "0.0.0.0", PORT):
            for wrong in ({}, {"E2B-Traffic-Access-Token": "wrong"}):
                assert_is_error(ask(machine.url, "GET", "/", headers=routing(sandbox_id, PORT) | wrong), 403)
            headers = routing(sandbox_id, PORT) | {"E2B-Traffic-Access-Token": token}
            answer = ask(machine.url, "GET", "/", headers=headers)
        assert answer.status == 200
        assert f"Host: masked.example:{PORT}\n".encode() in answer.body
        assert token.encode() not in answer.body
    finally:
        private.kill()


@line("F23")
@pytest.mark.parametrize("path", ["/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/upgrade", "//init"])
def test_the_daemons_own_routes_do_not_exist_outside(machine: Place, shared: Sandbox, path: str) -> None:
    headers = routing(machine.sandbox_id, token=str(shared._envd_access_token))
    assert_is_error(ask(machine.url, "POST", path, headers=headers, body={}), 404)


@line("P03")
def test_a_thousand_idle_connections_leave_room_for_more(machine: Place) -> None:
    where = urlsplit(machine.url)
    connections = [socket.create_connection((where.hostname, where.port), timeout=30) for _ in range(1000)]
    try:
        for connection in connections[:: len(connections) // 10]:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 204")
        assert raw.ask(machine.url, "GET", "/health").status == 204
    finally:
        for connection in connections:
            connection.close()
