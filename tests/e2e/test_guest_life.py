"""What the host asks of a guest besides commands and files: freeze and thaw, memory, trust. Called from the inside."""

import itertools
import json
import shlex

from e2b import Sandbox

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nYWdlbnRlbnY=\n-----END CERTIFICATE-----\n"


def ask(sandbox: Sandbox, method: str, path: str, body: object = None) -> str:
    """Return the status of an internal route, which is not to be had from outside."""
    return sandbox.commands.run(curl(sandbox, method, path, body, "/tmp/answer")).stdout


def curl(sandbox: Sandbox, method: str, path: str, body: object = None, answer: str = "/dev/null") -> str:
    token = sandbox._envd_access_token
    data = "" if body is None else f"--data {shlex.quote(json.dumps(body))}"
    url = f"http://127.0.0.1:49983{path}"
    return f"curl -s -o {answer} -w '%{{http_code}}' -X {method} -H 'X-Access-Token: {token}' {data} '{url}'"


def test_frozen_processes_stand_still_and_go_on_by_themselves(sandbox: Sandbox) -> None:
    script = "while :; do echo $EPOCHREALTIME; read -t 0.05 < <(:) || true; done"
    ticking = sandbox.commands.run(f"timeout 6 bash -c '{script}' || true", background=True, timeout=60)
    # The one who asks stands still as well, and gets its answer afterwards.
    assert ask(sandbox, "POST", "/freeze?holdMs=1500&maxWaitMs=1000") in {"200", "204"}
    times = [float(line) for line in ticking.wait().stdout.split()]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) > 1.2
    assert sandbox.commands.run("echo on").stdout == "on\n"


def test_a_frozen_disk_takes_nothing_until_it_is_thawed_or_time_is_up(sandbox: Sandbox) -> None:
    write = "begin=$EPOCHREALTIME; date > /var/tmp/frozen; echo $(((${EPOCHREALTIME/./} - ${begin/./}) / 1000))"
    freeze = curl(sandbox, "POST", "/fsfreeze?holdMs=1500")
    status, milliseconds = sandbox.commands.run(f"{freeze}; echo; {write}", user="root").stdout.split()
    assert status == "204"
    assert int(milliseconds) > 1000

    freeze, thaw = curl(sandbox, "POST", "/fsfreeze"), curl(sandbox, "POST", "/fsthaw")
    result = sandbox.commands.run(f"{freeze}; echo; {freeze}; echo; {thaw}; echo; {thaw}; echo; {write}", user="root")
    *statuses, milliseconds = result.stdout.split()
    assert statuses == ["204"] * 4
    assert int(milliseconds) < 20_000


def test_memory_is_told_in_bytes(sandbox: Sandbox) -> None:
    assert ask(sandbox, "GET", "/memory") == "200"
    memory = json.loads(sandbox.files.read("/tmp/answer"))
    assert set(memory) == {"total", "free", "available", "cached"}
    assert memory["free"] < memory["available"] < memory["total"]


def test_certificates_are_trusted_and_forgotten(sandbox: Sandbox) -> None:
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    before = sandbox.files.read(bundle)
    for _ in range(2):
        assert ask(sandbox, "POST", "/init", {"caBundle": CERTIFICATE}) == "204"
        assert sandbox.files.read(bundle).count(CERTIFICATE) == 1
    assert ask(sandbox, "POST", "/init", {"caBundle": "no certificate"}) == "400"
    assert ask(sandbox, "POST", "/init", {"caBundle": ""}) == "204"
    assert sandbox.files.read(bundle) == before
