"""The Python of README and docs is run as it is printed, page by page, and what a page says that it prints is what it prints. What a
page shows of a terminal is a quote of a scenario, which `test_scenarios.py` replays; what else it lets people type is understood
(`cli/test_verbs.py`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from geo import publish
from geo.log.publish_stream import FrameStream
from tests.scenario_text import Step, differs, steps
from tests.test_scenarios import SCENARIOS
from tests.world import World

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)

TERMINAL = re.compile(r"^```text\n(\$ .*?)^```\n", re.MULTILINE | re.DOTALL)

NOT_REPLAYED = ("./run setup", "./run demo")
"""They make an environment, and take a minute: `./run runtimes` runs the demo. What a page shows of them was printed once."""

IN_THE_DOCS = {
    ".run(bill)\n": '.run(bill, trigger="available-now")\n',  # it would run on
    '"bills"': '"/data/bills"',  # a table of a catalog
    'trigger="1 second")  # runs': 'trigger="available-now")  # runs',
}
"""What else than in a page is run here."""


def blocks(page: str) -> Iterator[tuple[str, str, str | None]]:
    """Language, code, and what is said to be printed."""
    for found in BLOCK.finditer((ROOT / page).read_text()):
        if "{{" not in found[2]:  # a template of dbt's
            yield found[1], found[2], found[3]


def test_the_pages_have_python() -> None:
    assert [page for page in PAGES if any(kind == "python" for kind, _, _ in blocks(page))] == [
        "README.md",
        "docs/deploying.md",
        "docs/reading.md",
        "docs/testing.md",
        "docs/using.md",
    ]


def typed(page: str) -> Iterator[Step]:
    """What a page shows of a terminal."""
    for found in TERMINAL.finditer((ROOT / page).read_text()):
        yield from steps("".join(f"  {line}\n" for line in found[1].splitlines() if line))


@pytest.mark.parametrize("page", [page for page in PAGES if any(typed(page))])
def test_what_a_page_shows_of_a_terminal_a_scenario_prints(page: str) -> None:
    replayed = [step for scenario in SCENARIOS for step in steps(scenario.read_text())]
    for step in typed(page):
        same = [one.expected for one in replayed if one.command == step.command]
        assert step.command in NOT_REPLAYED or any(not differs(expected, step.expected) for expected in same), (
            f"{page}: {step.command}: " + ("no scenario types it" if not same else "no scenario prints this")
        )


@pytest.mark.spark
@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))])
def test_a_page_does_what_it_says(page: str, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder)
    spark, data = world.spark, str(world.folder)
    rows = world.rows(0, 5).withColumnRenamed("number", "order_number")
    sales = spark.sql("SELECT 1 AS amount")
    known: dict[str, Any] = {
        "spark": spark,
        "df": rows,
        "sales": sales,
        "stream": _lines(world),
        "tmp_path": world.folder / "of-a-test",
    }
    known["tmp_path"].mkdir()
    if page in ("README.md", "docs/using.md"):  # which begin with a region that has been at work
        for end in (2, 3, 4):
            publish(
                rows.where(f"order_number < {end}"), "persistent://shop/web/orders", world.config, "us", order_by="order_number"
            )
        world.run_links("eu")
    for kind, code, said in blocks(page):
        for there, here in IN_THE_DOCS.items():
            code = code.replace(there, here)
        code, out = code.replace("/data/", f"{data}/"), StringIO()
        with redirect_stdout(out):
            if kind == "sql":
                print(*("{} {} {}".format(*row) for row in spark.sql(code).collect()), sep="\n")
            else:
                exec(compile(code, page, "exec"), known)  # noqa: S102  # ours
        assert said is None or out.getvalue() == said
    if isinstance(clicks := known.get("clicks"), FrameStream):
        clicks.await_termination()
        assert clicks.published.rows == 3
        assert spark.read.format("delta").load(f"{data}/bills").count() == 4, "what had come to eu"


def _lines(world: World) -> Any:
    folder = world.folder / "in"
    os.makedirs(folder)
    (folder / "a.txt").write_text("1\n2\n3\n")
    return world.spark.readStream.text(str(folder)).withColumnRenamed("value", "key")
