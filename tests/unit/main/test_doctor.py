import asyncio
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from agentenv.base.errors import Unavailable
from agentenv.main.doctor import host, machine, network, prepared
from agentenv.main.doctor.check import Check, Question, State, answer
from agentenv.main.doctor.command import format_json, make_command, print_table
from agentenv.main.doctor.machine import MachineFinding, examine_machine
from agentenv.main.settings import Settings
from agentenv.network.probe import Fact
from agentenv.network.settings import NetworkSettings
from agentenv.vmm.base import Accelerator, Capability


async def _good() -> Sequence[Check]:
    return [Check("good", State.OK, "fine")]


async def _stuck() -> Sequence[Check]:
    await asyncio.Event().wait()
    raise AssertionError


async def _refused() -> Sequence[Check]:
    raise Unavailable("no such thing")


async def _broken() -> Sequence[Check]:
    raise RuntimeError("boom")


async def test_one_bad_check_hides_no_other() -> None:
    checks = await answer(
        (
            Question("stuck", _stuck, timeout_seconds=0.01),
            Question("refused", _refused, is_required=False),
            Question("broken", _broken),
            Question("good", _good),
        )
    )
    assert [(check.key, check.state) for check in checks] == [
        ("stuck", State.MISSING),
        ("refused", State.WARNING),
        ("broken", State.MISSING),
        ("good", State.OK),
    ]
    assert all(check.remedy for check in checks if check.state is not State.OK)


async def _examine(finding: MachineFinding | Unavailable) -> dict[str, tuple[State, str]]:
    async def probe() -> MachineFinding:
        if isinstance(finding, Unavailable):
            raise finding
        return finding

    return {check.key: (check.state, check.value) for check in await examine_machine(probe)}


async def test_emulation_is_a_warning_that_says_why_kvm_is_not_used() -> None:
    found = await _examine(
        MachineFinding("qemu", Accelerator.TCG, (Capability.PAUSE,), ("a guest did not run within 3 s",))
    )
    assert found == {
        "kvm": (State.WARNING, "a guest did not run within 3 s"),
        "driver": (State.WARNING, "qemu with tcg; can pause"),
    }


async def test_remedy_that_the_trial_knows_is_the_one_that_is_shown() -> None:
    async def probe() -> MachineFinding:
        return MachineFinding("qemu", Accelerator.TCG, (), ("/dev/kvm is closed; open it",))

    kvm = (await examine_machine(probe))[0]
    assert (kvm.value, kvm.remedy) == ("/dev/kvm is closed", "open it")


async def test_usable_kvm_is_well() -> None:
    found = await _examine(MachineFinding("qemu", Accelerator.KVM, (Capability.PAUSE,), ()))
    assert {state for state, _ in found.values()} == {State.OK}


async def test_no_driver_at_all_means_that_no_server_can_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_KVM", tmp_path / "kvm")
    found = await _examine(Unavailable("no accelerator works; install QEMU"))
    assert found["driver"] == (State.MISSING, "no accelerator works")
    assert found["kvm"][1].startswith("there is no ")


async def test_empty_home_lacks_what_setup_prepares(tmp_path: Path) -> None:
    checks = await prepared.examine_prepared(tmp_path)
    assert [(check.key, check.state, check.remedy) for check in checks] == [
        ("core_module", State.OK, ""),
        ("guest", State.MISSING, "run `aenv setup`"),
        ("base_image", State.MISSING, "run `aenv setup`"),
    ]


async def test_a_module_that_cannot_be_loaded_is_made_by_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This is how Python writes down that a module is not to be found.
    monkeypatch.setitem(sys.modules, "agentenv_core", None)
    module = (await prepared.examine_prepared(tmp_path))[0]
    assert (module.key, module.state, module.remedy) == ("core_module", State.MISSING, "run `make setup`")


async def test_missing_device_that_is_optional_only_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain").touch()
    devices = ("tun", tmp_path / "none", State.MISSING, "a"), ("ublk", tmp_path / "plain", State.WARNING, "b")
    monkeypatch.setattr(host, "_DEVICES", devices)
    checks = await host.examine_devices()
    assert [(check.state, check.remedy) for check in checks] == [(State.MISSING, "a"), (State.WARNING, "b")]
    assert checks[1].value == f"{tmp_path / 'plain'} is no device"


@pytest.mark.parametrize("free, state", [(100 << 20, State.MISSING), (1 << 30, State.WARNING), (5 << 30, State.OK)])
async def test_disk_is_judged_by_what_is_free(
    free: int, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free})())
    checks = {check.key: check for check in await host.examine_resources(tmp_path / "not" / "there")}
    assert checks["disk"].state is state
    assert str(tmp_path) in checks["disk"].value


async def test_network_facts_keep_their_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def probe(settings: object) -> list[Fact]:
        return [
            Fact("address range", is_ok=False, detail="10.0.0.0/8 is in use; set network.network"),
            Fact("resolver for guests", is_ok=False, detail="none", is_required=False),
        ]

    monkeypatch.setattr("agentenv.network.probe.probe", probe)
    checks = await network.examine_network(settings=None)  # type: ignore[arg-type]
    assert [(check.key, check.state, check.remedy) for check in checks] == [
        ("address_range", State.MISSING, "set network.network"),
        ("resolver_for_guests", State.WARNING, "see the message"),
    ]


def test_answer_for_programs_is_keyed_and_says_whether_a_server_can_work(tmp_path: Path) -> None:
    checks = [Check("kvm", State.WARNING, "no", "enable"), Check("guest", State.MISSING, "none", "run `aenv setup`")]
    parsed = json.loads(format_json(checks, tmp_path))
    assert parsed["able"] is False
    assert parsed["checks"]["kvm"] == {"state": "warning", "value": "no", "remedy": "enable"}
    assert json.loads(format_json(checks[:1], tmp_path))["able"] is True


def test_answer_for_people_shows_markup_of_values_as_text(tmp_path: Path) -> None:
    output = io.StringIO()
    print_table([Check("kvm", State.MISSING, "[red]x[/red]", "do it")], Console(file=output, width=100), tmp_path)
    assert "[red]x[/red]" in output.getvalue()
    assert "cannot work here yet: kvm" in output.getvalue()


def test_leaks_are_listed_and_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def find_leaks(path: Path, network: NetworkSettings) -> list[str]:
        return ["mount /somewhere"]

    monkeypatch.setattr("agentenv.main.doctor.command.find_leaks", find_leaks)
    command = make_command(lambda: Settings(home=tmp_path))

    plain = CliRunner().invoke(command, ["--leaks"])
    assert (plain.exit_code, plain.output) == (1, "mount /somewhere\n")
    for_programs = CliRunner().invoke(command, ["--leaks", "--json"])
    assert json.loads(for_programs.output) == {"found": ["mount /somewhere"]}
