"""The configuration that `geo init` writes, and what it says comes next. No Spark."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from geo.cli.init import CONFIG
from geo.cli.main import main, make_parser
from geo.config import load


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEO_CONFIG", raising=False)


def test_it_writes_one_file_and_what_it_prints_can_be_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    assert [one.name for one in tmp_path.iterdir()] == ["geo.yaml"]
    config = load("geo.yaml")
    assert {name: one.root for name, one in config.clusters.items()} == {name: f"{tmp_path}/data/{name}" for name in ("eu", "us")}
    assert {link.name for link in config.links} == {"eu->us", "us->eu"}
    verbs = [shlex.split(line) for line in capsys.readouterr().out.splitlines() if line.startswith("  geo ")]
    assert [one[1] for one in verbs] == ["publish", "replicate", "peek", "status"]
    for _, *words in verbs:
        assert make_parser(words[0]).parse_args(words).config is None  # it is found
    assert main(["clusters"]) == 0
    assert capsys.readouterr().out.count("nothing is at ") == 2


def test_another_place_is_named_in_what_comes_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "my geo.yaml"]) == 0
    assert "geo replicate --config 'my geo.yaml' --cluster us" in capsys.readouterr().out


def test_what_is_there_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    Path("geo.yaml").write_text("mine")
    assert main(["init"]) == 2
    assert Path("geo.yaml").read_text() == "mine"
    assert main(["init", "no/such/geo.yaml"]) == 2
    assert "no/such/geo.yaml cannot be written: No such file or directory" in capsys.readouterr().err


def test_what_is_behind_a_hash_is_of_the_configuration_too() -> None:
    """Someone takes the hashes away, and it is read."""
    lines = CONFIG.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("# publish:"))
    Path("geo.yaml").write_text("\n".join([*lines[:begin], *(line.removeprefix("# ") for line in lines[begin:])]) + "\n")
    assert [one.cluster for one in load("geo.yaml").publications] == ["eu"] * 3
