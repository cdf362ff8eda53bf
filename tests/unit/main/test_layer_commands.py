"""`aenv layer`: what it prints, and how it ends."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agentenv.cli.lazy import LazyGroup, Verb
from support.layers import VECTORS, write_image

_GUIDE = (Path(__file__).resolve().parents[3] / "docs/guide/cli.md").read_text()


def _run(*words: str | Path) -> Result:
    group = LazyGroup("aenv", verbs=[Verb("layer", "agentenv.main.commands.layer:layer", "")])
    return CliRunner().invoke(group, ["layer", *map(str, words)])


def test_inspect_prints_the_same_values_as_lines_and_as_json() -> None:
    path = VECTORS / "tar_zfile_two_segments.bin"
    lines = dict(line.split("\t") for line in _run("inspect", path).stdout.splitlines())
    document = json.loads(_run("inspect", path, "--json").stdout)
    assert document["compression"] == lines["compression"] == "lz4"
    assert (document["is_archive"], lines["is_archive"]) == (True, "true")
    assert document["entries"] == int(lines["entries"]) == 2
    assert list(document) == list(lines)


def test_the_tag_of_a_stranger_is_made_safe(tmp_path: Path) -> None:
    content = (VECTORS / "two_segments.bin").read_bytes()
    # The tag stands 134 bytes from the begin of the trailer, which is the last 4 KiB.
    at = len(content) - 4096 + 134
    (tmp_path / "layer").write_bytes(content[:at] + b"\x1b[2J" + content[at + 4 :])
    assert json.loads(_run("inspect", tmp_path / "layer", "--json").stdout)["tag"].startswith(" [2J")


def test_verify_checks_the_others_when_one_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes((VECTORS / "zfile_two_segments.bin").read_bytes()[:-600])
    result = _run("verify", tmp_path / "bad", VECTORS / "two_segments.bin", VECTORS / "zfile_two_segments.bin")
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [(Path(path).name, checked) for path, checked, _ in rows] == [
        ("two_segments.bin", "structure"),
        ("zfile_two_segments.bin", "blocks"),
    ]
    assert rows[0][2].startswith("sha256:0284c202f3c6")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"aenv: layer {tmp_path}/bad is damaged at byte ")
    assert result.stderr.count("\n") == 1


def test_verify_as_json_says_what_is_wrong_with_which_file(tmp_path: Path) -> None:
    result = _run("verify", "--json", VECTORS / "zfile_two_segments.bin", tmp_path / "none")
    good, bad = json.loads(result.stdout)
    assert (good["checked"], good["error"]) == ("blocks", None)
    assert (bad["digest"], bad["error"]) == (None, f"cannot open {tmp_path}/none: No such file or directory")
    assert (result.exit_code, result.stderr) == (1, "")


def test_flatten_makes_a_layer_that_verifies(tmp_path: Path) -> None:
    write_image(tmp_path / "raw", blocks=40)
    first = _run("flatten", VECTORS / "two_segments.bin", VECTORS / "data_and_zero.bin", "-o", tmp_path / "plain")
    packed = _run("flatten", tmp_path / "plain", "-o", tmp_path / "packed", "--compression", "zstd", "--archive")
    assert (first.exit_code, packed.exit_code) == (0, 0)
    digest = dict(line.split("\t") for line in packed.stdout.splitlines())["digest"]
    assert _run("verify", tmp_path / "packed").stdout == f"{tmp_path}/packed\tblocks\t{digest}\n"
    inspected = json.loads(_run("inspect", "--json", tmp_path / "packed").stdout)
    assert (inspected["compression"], inspected["is_archive"], inspected["zeroed_bytes"]) == ("zstd", True, 0)


def test_flatten_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    result = _run("flatten", VECTORS / "two_segments.bin", "-o", tmp_path / "there")
    assert (result.exit_code, result.stderr) == (1, f"aenv: cannot create {tmp_path}/there: File exists\n")
    assert (tmp_path / "there").read_text() == "mine"


@pytest.mark.parametrize("words", [["verify"], ["flatten", "x"], ["flatten", "x", "-o", "y", "--compression", "rot13"]])
def test_wrong_usage_has_a_code_of_its_own(words: list[str]) -> None:
    assert _run(*words).exit_code == 2


@pytest.mark.parametrize("verb", ["inspect", "verify", "flatten"])
def test_the_guide_explains_the_verb(verb: str) -> None:
    assert f"`aenv layer {verb}" in _GUIDE
