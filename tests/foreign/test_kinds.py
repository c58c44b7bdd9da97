"""One kind of foreign commit for each thing that a commit can do, on real tables. (All kinds in all situations: `./run foreign`.)"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

from tests.foreign import consumers, links, producers
from tests.foreign.kinds import KINDS
from tests.foreign.place import Kind
from tests.foreign.verdicts import Cell, Verdict

pytestmark = pytest.mark.spark

RIGHT, LOUD = Verdict.RIGHT, Verdict.LOUD

BELOW_LINKS: dict[str, tuple[Verdict, Verdict, Verdict]] = {
    # What the source's link, the target's link and a tail make of it.
    "delta-rs append of messages that are there": (RIGHT, LOUD, RIGHT),
    "delta-rs append of messages that are coming": (RIGHT, RIGHT, RIGHT),
    "delta-rs delete of messages": (LOUD, RIGHT, LOUD),
    "delta-rs merge that inserts": (RIGHT, RIGHT, RIGHT),
    "delta-rs merge that deletes": (LOUD, RIGHT, LOUD),
    "delta-rs optimize (compact)": (RIGHT, RIGHT, RIGHT),
    "delta-rs restore that removes only": (LOUD, RIGHT, LOUD),
    "delta-rs set_table_properties": (RIGHT, RIGHT, RIGHT),
    "delta-rs set_column_metadata": (RIGHT, RIGHT, RIGHT),
    "crafted append twice (delta-rs after a lost answer)": (RIGHT, RIGHT, LOUD),
    "crafted append without commitInfo": (RIGHT, RIGHT, RIGHT),
    "crafted removal that calls itself an append": (LOUD, RIGHT, LOUD),
}
"""Engine and kind, and what must come of it."""


def _kind(name: str) -> Kind:
    (found,) = [kind for kind in KINDS if f"{kind.engine} {kind.name}" == name]
    return found


@pytest.fixture(scope="module")
def below_links(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[Kind, Mapping[str, Cell]]:
    return links.at_rest(spark, tmp_path_factory.mktemp("links"), [_kind(name) for name in BELOW_LINKS])


@pytest.mark.parametrize("name", BELOW_LINKS)
def test_links_and_tails_are_right_or_stop_at_a_foreign_commit(below_links: Mapping[Kind, Mapping[str, Cell]], name: str) -> None:
    cells = below_links[_kind(name)]
    assert [cell.verdict for cell in cells.values()] == list(BELOW_LINKS[name]), cells


@pytest.mark.parametrize(("name", "verdict"), [("delta-rs optimize (compact)", RIGHT), ("delta-rs delete of messages", LOUD)])
def test_a_live_producer_goes_on_after_a_foreign_commit_or_stops(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, name: str, verdict: Verdict
) -> None:
    cells = producers.with_live_producers(spark, tmp_path_factory.mktemp("producer"), [_kind(name)])
    assert cells[_kind(name)][producers.COLUMN].verdict is verdict, cells


@pytest.mark.parametrize("name", ["delta-rs append of messages that are there", "delta-rs delete of messages"])
def test_a_consumer_is_given_each_message_once_whatever_somebody_commits(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    cells = consumers.with_consumers(spark, tmp_path_factory.mktemp("consumer"), [_kind(name)])
    assert cells[_kind(name)][consumers.COLUMN].verdict is RIGHT, cells
