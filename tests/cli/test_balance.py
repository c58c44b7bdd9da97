"""`geo balance simulate`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geo.cli.main import main

_SMALL = ["balance", "simulate", "--topics", "500", "--brokers", "5", "--bundles", "40", "--minutes", "20"]


@pytest.mark.slow
def test_it_compares_all_and_names_heavy_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "plot.png"
    assert main([*_SMALL, "--zipf", "1.5", "--compare", "--plot", str(plot), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["topics"], found["bundles"], found["brokers"]) == (500, 40, 5)
    assert all(load > found["mean_bytes_per_s"] for load in found["heavy_topics"].values())
    assert len(found["heavy_topics"]) == 1
    assert len({(run["strategy"], run["shedder"]) for run in found["runs"]}) == 16
    assert all(run["phases"][0]["unassigned"] == 0 for run in found["runs"])
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_it_prints_a_row_for_each_phase_and_repeats_itself_by_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*_SMALL, "--changes", "1", "--set", "broker_threshold_shedder=0.05", "--set", "auto_bundle_split_enabled=false"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert [line.split()[2] for line in first.splitlines()[-2:]] == ["first", "changed"]
    assert main(arguments) == 0
    same = [line.split(" s ")[0].rsplit("  ", 1)[0] for line in capsys.readouterr().out.splitlines()]
    assert same == [line.split(" s ")[0].rsplit("  ", 1)[0] for line in first.splitlines()], "all but what it took"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give --reports FILE, or all of"),
        (["--topics", "5"], "give --reports FILE, or all of"),
        (["--topics", "5", "--brokers", "2", "--bundles", "4", "--reports", "x"], "give --reports FILE, or all of"),
        (["--reports", "x", "--changes", "1"], "--changes is of generated load"),
        (["--reports", "none.json"], "none.json has no load reports"),
        ([*_SMALL[2:], "--set", "speed=1"], "there is no setting 'speed'"),
        ([*_SMALL[2:], "--set", "broker_max_topics=many"], "expected: a whole number"),
        ([*_SMALL[2:], "--set", "shedding_enabled=1"], "expected: true or false"),
        ([*_SMALL[2:], "--set", "broker_overloaded_threshold=85"], "a fraction from 0 to 1"),
    ],
)
def test_what_cannot_be_simulated_ends_with_2(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["balance", "simulate", *arguments]) == 2
    assert says in capsys.readouterr().err
