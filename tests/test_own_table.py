"""A run of `tests/own_table.py` in which nothing happened is not clean."""

from __future__ import annotations

import pytest

from tests.own_table import main, untried


def test_a_run_shows_nothing_without_a_kill_and_a_compaction() -> None:
    assert untried(kills=1, compactions=1) == []
    assert [len(untried(kills=0, compactions=2)), len(untried(kills=2, compactions=0)), len(untried(kills=0, compactions=0))] == [
        1,
        1,
        2,
    ]


@pytest.mark.parametrize("minutes", ["0", "-1", "nan"])
def test_a_run_of_no_time_does_not_begin(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--minutes", minutes])
    said = capsys.readouterr()
    assert "more than 0" in said.err
    assert not said.out, "nothing was begun"
