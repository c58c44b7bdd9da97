"""The text of scenarios: prose, commands, and what they print. How a command runs is for who replays them.

The form is that of cram: a command is indented and follows `$`, with `>` on the lines it goes on with; below it stands what it
prints. `…` stands for anything within a line. With GEO_REWRITE_SCENARIOS=1 what is printed is written into the file instead of
compared; read the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REWRITES = os.environ.get("GEO_REWRITE_SCENARIOS") == "1"


@dataclass(slots=True)
class Step:
    """A command, the line of the file it stands in, and what it is to print."""

    line: int
    command: str
    expected: list[str] = field(default_factory=list)


def steps(text: str) -> list[Step]:
    """The commands of a scenario, in their order."""
    found: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("  $ "):
            found.append(Step(number, line[4:]))
        elif line.startswith("  > "):
            found[-1].command = found[-1].command.removesuffix("\\") + "\n" + line[4:]
        elif line.startswith("  "):
            found[-1].expected.append(line[2:])
    return found


def differs(expected: list[str], printed: list[str]) -> bool:
    """Whether what was printed is not what is expected, where `…` is anything."""
    pattern = "\n".join(".*".join(map(re.escape, line.split("…"))) for line in expected)
    return re.fullmatch(pattern, "\n".join(printed)) is None


_CHANGES = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[\d.:+Z]*|\b\d\d:\d\d:\d\d\b|\b\d{9,}\b|[0-9a-f]{8}-[0-9a-f-]{27}")
"""What is another one each time: times, ids of ledgers and tables."""


def rewritten(text: str, printed: Mapping[int, list[str]]) -> str:
    """The scenario with what its commands printed, by their lines. A line that is as expected stays as it is written."""
    lines = text.splitlines()
    for step in reversed(steps(text)):
        now = []
        for line in printed[step.line]:
            as_written = next((one for one in step.expected if not differs([one], [line])), None)
            now.append(f"  {_CHANGES.sub('…', line) if as_written is None else as_written}")
        first = step.line + step.command.count("\n")
        lines[first : first + len(step.expected)] = now
    return "\n".join(lines) + "\n"


def replay(scenario: Path, run: Callable[[str], list[str]]) -> None:
    """Holds a scenario that prints the same each time against what its commands print now, to the letter."""
    now: list[str] = []
    for line in scenario.read_text().splitlines():
        if line.startswith("  $ "):
            now += [line, *(f"  {printed}" for printed in run(line[4:]))]
        elif not line.startswith("  "):
            now.append(line)
    if REWRITES:
        scenario.write_text("\n".join(now) + "\n")
    assert "\n".join(now) + "\n" == scenario.read_text()
