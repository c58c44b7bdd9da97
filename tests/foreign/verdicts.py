"""Verdicts on cells, and the matrix that is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from geo.text import first_line
from tests.foreign.place import Kind


class Verdict(str, Enum):
    RIGHT = "right"
    """Rows, ids, order and counts are what they must be."""
    LOUD = "LOUD"
    """It stopped and names why; nothing wrong was written."""
    WRONG = "WRONG"
    """Neither."""
    NONE = "-"
    """The engine refuses to make such a commit, or it does not concern this."""


@dataclass(frozen=True, slots=True)
class Cell:
    verdict: Verdict
    why: str = ""


def right(*faults: str) -> Cell:
    """RIGHT if there are no faults, else WRONG with them."""
    return Cell(Verdict.WRONG, "; ".join(faults)) if faults else Cell(Verdict.RIGHT)


def loud(why: str, *faults: str) -> Cell:
    """LOUD if nothing wrong was done beside it."""
    return Cell(Verdict.WRONG, f"it said: {why}; but {'; '.join(faults)}") if faults else Cell(Verdict.LOUD, why)


def cells(kinds: Sequence[Kind], column: str, cell: Callable[[Kind], Cell]) -> dict[Kind, dict[str, Cell]]:
    """One of each kind, in its column. One that fails does not end the others."""

    def made(kind: Kind) -> Cell:
        try:
            return cell(kind)
        except Exception as error:
            return right(first_line(error))

    return {kind: {column: made(kind)} for kind in kinds}


Matrix = Mapping[tuple[str, str], Mapping[str, Cell]]
"""Cells by engine and kind, then by column."""


def rendered(matrix: Matrix, columns: Sequence[str]) -> list[str]:
    """The matrix as Markdown: a table an engine, and below them what was wrong."""
    lines: list[str] = []
    for engine in dict.fromkeys(engine for engine, _ in matrix):
        lines += ["", f"### {engine}", "", f"| commit | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for (by, kind), cells in matrix.items():
            if by == engine:
                shown = (cells[column].verdict.value if column in cells else " " for column in columns)
                lines.append(f"| {kind} | {' | '.join(shown)} |")
    counts = {
        verdict: sum(cell.verdict is verdict for cells in matrix.values() for cell in cells.values()) for verdict in Verdict
    }
    total = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if verdict is not Verdict.NONE)
    return [f"{len(matrix)} kinds of commits: {total}.", *lines]


MAY = (
    "**This is what happens, not what you may do.** On S3 nobody else may commit to a topic's table: another writer's commit can take the place of one of ours. `geo maintain` compacts and expires there.",
    "On Databricks switch off predictive optimization, auto-compaction and scheduled OPTIMIZE and VACUUM for the schema, or the folder, of these tables; nothing of that was run on Databricks.",
    "Elsewhere OPTIMIZE and VACUUM go well (below). A table of your own that is published ([own-table.md](own-table.md)) may do all that its page says, and may be clustered (`CLUSTER BY`).",
)
"""What the page says before what happens: who may."""


def document(matrix: Matrix, columns: Sequence[str], versions: str) -> str:
    """What docs/foreign.md holds."""
    lines = [
        "# Commits that are not delta-geo's",
        "",
        *MAY,
        "",
        f"Made by `./run foreign` with {versions}. (polars has no commits of its own: it writes by deltalake.) Each kind of commit was",
        "made in the log of us, which is linked with eu both ways, while both regions publish. Then the logs were compared, row by row,",
        "with what must be there.",
        "",
        "- **right**: each message is where it belongs, once, as it was written, in the order of its ledger, and counted right.",
        "- **LOUD**: it stopped with a reason, wrote nothing wrong, and names the verb that goes on. A log that every engine refuses is LOUD, too.",
        "- **WRONG**: neither. -: the engine does not make such a commit in a topic's log. An empty cell was not looked at.",
        "",
        "*source* is the link us->eu, which reads that log, *target* the link eu->us, which appends to it; *at rest* they start after the",
        "commit, *running* they meet it at work. *tail* follows the log commit by commit. A *producer* that lives publishes into it before",
        "and after the commit, and is started again. A *consumer* with acknowledgements is given its messages.",
        "",
        *rendered(matrix, columns),
    ]
    for verdict, title in ((Verdict.WRONG, "What is wrong"), (Verdict.NONE, "What engines refuse")):
        if found := details(matrix, verdict):
            lines += ["", f"### {title}", "", *found]
    return "\n".join(lines) + "\n"


def details(matrix: Matrix, verdict: Verdict) -> list[str]:
    """A line for each cell of a verdict that says why."""
    return [
        f"- {engine}, {kind}, {column}: {cell.why.replace('|', '/')}"
        for (engine, kind), cells in matrix.items()
        for column, cell in cells.items()
        if cell.verdict is verdict and cell.why
    ]
