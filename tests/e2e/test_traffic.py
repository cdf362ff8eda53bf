"""The data plane with a real VM behind it: every way in, streams both ways, and the answers without a guest."""

import hashlib
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from e2b import Sandbox

from agentenv.main.demo.scratch import ScratchServer

PORT = 3100
# A web server with one route per kind of traffic; standard library only, as a guest has nothing else.
WEB_SERVER = r"""
import base64, hashlib, http.server, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.echo_socket()
        if self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in (b"data: 1\n\n", None, b"data: 2\n\n", b""):
                if line is None:
                    self.server.go_on.wait(60)
                    continue
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
            return
        if self.path == "/go-on":
            self.server.go_on.set()
        body = (self.path + "\n" + str(self.headers)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left:
            piece = self.rfile.read(min(left, 65536))
            digest.update(piece); left -= len(piece)
        body = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def echo_socket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        while head := self.rfile.read(2):
            length = head[1] & 127
            mask, data = self.rfile.read(4), self.rfile.read(length)
            text = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
            self.wfile.write(bytes((head[0], len(text))) + text)
            self.wfile.flush()
            if head[0] & 15 == 8:
                break
        self.close_connection = True

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

import threading
server = Server((sys.argv[1], int(sys.argv[2])), Handler)
server.go_on = threading.Event()
print("serving", flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def web(sandbox: Sandbox) -> dict[str, str]:
    """Start a web server in the shared sandbox and return the headers that lead to it."""
    sandbox.files.write("web.py", WEB_SERVER)
    serve(sandbox, "0.0.0.0", PORT)
    return {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(PORT)}


def serve(sandbox: Sandbox, host: str, port: int) -> None:
    handle = sandbox.commands.run(f"python3 web.py {host} {port}", background=True, timeout=0)
    for stdout, _, _ in handle:
        if stdout and "serving" in stdout:
            break
    handle.disconnect()


def fetch(url: str, headers: dict[str, str], body: bytes | None = None) -> str:
    request = urllib.request.Request(url, data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def failure(url: str, headers: dict[str, str]) -> tuple[int, dict[str, object]]:
    with pytest.raises(urllib.error.HTTPError) as raised:
        fetch(url, headers)
    with raised.value as answer:
        return answer.code, json.loads(answer.read())


def test_headers_lead_to_any_port_on_any_path(server: ScratchServer, web: dict[str, str]) -> None:
    for path in ("/", "/health", "/sandboxes", "/a%2Fb//c?q=%20+"):
        assert fetch(server.url + path, web).splitlines()[0] == path


def test_the_proxy_prefix_is_taken_off(server: ScratchServer, web: dict[str, str]) -> None:
    assert fetch(f"{server.url}/proxy/x/y", web).splitlines()[0] == "/x/y"


def test_a_host_name_leads_to_a_port(server: ScratchServer, sandbox: Sandbox, web: dict[str, str], domain: str) -> None:
    host = f"{PORT}-{sandbox.sandbox_id}.{domain}"
    assert fetch(f"{server.url}/by-host", {"Host": host}).splitlines()[0] == "/by-host"


@pytest.fixture(scope="module")
def domain() -> str:
    """The domain that the shared server answers to (see `conftest.server`)."""
    return "sandboxes.test"


def test_the_api_key_never_reaches_a_guest(server: ScratchServer, web: dict[str, str]) -> None:
    echoed = fetch(server.url + "/", web | {"X-API-KEY": server.key, "X-Mine": "kept"})
    assert "X-Mine: kept" in echoed
    assert server.key not in echoed


def test_a_server_on_the_guests_loopback_is_reached(
    server: ScratchServer, sandbox: Sandbox, web: dict[str, str]
) -> None:
    serve(sandbox, "127.0.0.1", PORT + 1)
    deadline = time.monotonic() + 30
    # The forwarder in the guest looks for new listeners about once a second.
    while (text := fetch_if_open(server.url + "/loopback", web | {"E2b-Sandbox-Port": str(PORT + 1)})) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert text.splitlines()[0] == "/loopback"


def fetch_if_open(url: str, headers: dict[str, str]) -> str | None:
    try:
        return fetch(url, headers)
    except urllib.error.HTTPError as error:
        with error:
            return None if error.code == 502 else pytest.fail(f"answered {error.code}")


def test_an_event_stream_is_not_held_back(server: ScratchServer, web: dict[str, str]) -> None:
    request = urllib.request.Request(server.url + "/events", headers=web)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.read(len(b"data: 1\n\n")) == b"data: 1\n\n"
        # The second event comes only after this request, so the first was not waiting for it.
        fetch(server.url + "/go-on", web)
        assert answer.read() == b"data: 2\n\n"


def test_a_large_body_streams_into_the_guest(server: ScratchServer, web: dict[str, str]) -> None:
    body = bytes(range(256)) * 4096 * 64  # 64 MiB
    assert fetch(server.url + "/upload", web, body) == hashlib.sha256(body).hexdigest()


def test_a_websocket_echoes_through_the_server(server: ScratchServer, web: dict[str, str]) -> None:
    where = urlsplit(server.url)
    head = {
        "Host": "any",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        lines = "".join(f"{name}: {value}\r\n" for name, value in (head | web).items())
        connection.sendall(f"GET /socket HTTP/1.1\r\n{lines}\r\n".encode())
        with connection.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 101")
            while answer.readline().strip():
                pass
            for text in (b"one", b"two"):
                connection.sendall(bytes((0x81, 0x80 | len(text))) + bytes(4) + text)
                assert answer.read(2 + len(text)) == bytes((0x81, len(text))) + text


def test_a_closed_port_is_told_apart_from_a_sandbox_that_is_gone(
    server: ScratchServer, sandbox: Sandbox, create_sandbox: Callable[..., Sandbox]
) -> None:
    status, body = failure(server.url, {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "3999"})
    assert (status, body["code"], body["port"]) == (502, 502, 3999)
    assert "port is not open" in str(body["message"])

    killed = create_sandbox()
    killed.kill()
    status, body = failure(server.url, {"E2b-Sandbox-Id": killed.sandbox_id, "E2b-Sandbox-Port": "3999"})
    assert (status, body["code"], body["sandboxId"]) == (502, 502, killed.sandbox_id)
    assert "was not found" in str(body["message"])


@pytest.mark.parametrize("path", ["/init", "/shutdown", "//init", "/%69nit", "/init/", "/x/../init"])
def test_the_daemons_own_routes_are_closed_from_outside(server: ScratchServer, sandbox: Sandbox, path: str) -> None:
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port), timeout=60) as connection:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n{lines}\r\n{{}}".encode())
        status = connection.makefile("rb").readline()
    assert status.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), status
    assert sandbox.is_running()


def test_the_daemon_refuses_calls_without_the_sandboxs_token(server: ScratchServer, sandbox: Sandbox) -> None:
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    status, body = failure(f"{server.url}/envs", headers)
    assert (status, body["code"]) == (401, 401)
    assert failure(f"{server.url}/envs", headers | {"X-Access-Token": "wrong"})[0] == 401
