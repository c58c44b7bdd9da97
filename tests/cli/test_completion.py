"""What the shell is told when it asks for what may follow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from geo.cli.completion import NameOf, asked, names
from geo.cli.main import main


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("peek --cluster", NameOf.CLUSTER),
        ("peek --config geo.yaml --cluster eu --topic", NameOf.TOPIC),
        ("groups describe --subscription", NameOf.SUBSCRIPTION),
        ("links pause --source eu --target", NameOf.TARGET),
        ("publish --continue-from", NameOf.CLUSTER),
        ("failover --topic t --from", NameOf.CLUSTER),
        ("rebuild --from", NameOf.CLUSTER),
        ("backfill --from", None),  # a time
        ("subscriptions seek --to", None),
        ("explain", NameOf.TOPIC),
        ("explain --engine native", NameOf.TOPIC),
        ("explain persistent://a/b/c", None),
        ("topics describe", NameOf.TOPIC),
        ("clusters remove", NameOf.CLUSTER),
        ("topics", None),
        ("", None),
    ],
)
def test_what_a_name_is_of_is_told_by_the_words_before_it(typed: str, expected: NameOf | None) -> None:
    assert asked(typed.split()) is expected


def test_names_of_the_configuration_are_told_and_of_links_the_other_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GEO_CONFIG", raising=False)
    assert names(NameOf.CLUSTER, ["peek", "--cluster"]) == []  # no configuration
    assert main(["init"]) == 0
    assert names(NameOf.CLUSTER, ["peek", "--cluster"]) == ["eu", "us"]
    assert names(NameOf.TARGET, ["backfill", "--source", "eu", "--target"]) == ["us"]
    assert names(NameOf.SOURCE, ["backfill", "--target", "eu", "--source"]) == ["us"]
    Path("other.yaml").write_text("version: 1\nclusters: {ap: {root: ap}}\n")
    assert names(NameOf.CLUSTER, ["peek", "--config", "other.yaml", "--cluster"]) == ["ap"]
    Path("geo.yaml").write_text("clusters: [")
    assert names(NameOf.CLUSTER, ["peek", "--cluster"]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("geo su", {"subscriptions"}),
        ("geo subscriptions st", {"status"}),
        ("geo verify --qu", {"--quick"}),
        ("geo peek --engine ", {"auto", "native", "spark"}),
        ("geo peek --config geo.yaml --cluster e", {"eu"}),
        ("geo clusters remove ", {"eu", "us"}),
    ],
)
def test_the_shell_is_told_verbs_options_choices_and_names(typed: str, expected: set[str], tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    shell = {"_ARGCOMPLETE": "1", "COMP_LINE": typed, "COMP_POINT": str(len(typed)), "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
             "_ARGCOMPLETE_IFS": "\n"}  # fmt: skip
    (tmp_path / "geo.yaml").write_text("version: 1\nclusters: {eu: {root: eu}, us: {root: us}}\n")
    subprocess.run([sys.executable, "-m", "geo"], env={**os.environ, **shell}, check=True, timeout=60, cwd=tmp_path)
    assert {word.strip() for word in answer.read_text().split("\n")} == expected
