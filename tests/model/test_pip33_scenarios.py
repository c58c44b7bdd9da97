"""The scenarios of PIP-33 in tests/scenarios/pip33, replayed in the world of `pip33.py` by the commands of `pip33_shell.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model.pip33_shell import Shell
from tests.scenario_text import REWRITES, differs, rewritten, steps

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios" / "pip33").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_scenario_goes_as_written(path: Path) -> None:
    shell, all_printed = Shell(), {}
    for step in steps(path.read_text()):
        printed = all_printed[step.line] = shell.run(step.command)
        assert REWRITES or not differs(step.expected, printed), f"{path.name}:{step.line}: {step.command}\n" + "\n".join(printed)
    if REWRITES:
        path.write_text(rewritten(path.read_text(), all_printed))


def test_there_are_scenarios() -> None:
    assert all(steps(path.read_text()) for path in SCENARIOS)
    assert len(SCENARIOS) >= 8
