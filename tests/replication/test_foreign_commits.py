"""What somebody else commits to a source or a target: judged by its actions on real tables, by writers with words of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from geo.delta.appending import append_rows
from geo.delta.ddl import set_property
from geo.delta.table import Table
from geo.delta.tail import Tail
from geo.errors import RetryableError
from geo.log.ledgers import Batch, LedgerKey, Span
from geo.now import now_us
from geo.replication.link_status import link_statuses
from geo.replication.repair import reconcile_links
from geo.streams.life import State
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

MATCH = "t.origin = s.origin AND t.ledger_id = s.ledger_id AND t.entry_id = s.entry_id"


def _merge(world: World, log: Table) -> None:
    """Five new messages, by delta-rs, whose metrics have other names than Spark's."""
    rows = world.entries("us", 15, 25).toArrow()
    merge = DeltaTable(log.name).merge(rows, MATCH, source_alias="s", target_alias="t")
    merge.when_not_matched_insert_all().execute()


def _insert_twice(world: World, log: Table) -> None:
    rows = world.entries("us", 20, 25).unionAll(world.entries("us", 23, 25)).toArrow()
    write_deltalake(log.name, rows, mode="append")


def _insert_unseen(world: World, log: Table) -> None:
    """Rows of which the commit says that they change nothing."""
    world.entries("us", 20, 25).write.format("delta").mode("append").option("dataChange", "false").save(log.name)


def _track_rows(world: World, log: Table) -> None:
    world.spark.sql(f"ALTER TABLE {log.sql} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    world.write("us", 20, 25)


@pytest.mark.parametrize("change", [_merge, _insert_twice, _insert_unseen, _track_rows])
def test_rows_that_came_into_a_source_without_a_record_of_ours_cross_once(
    linked: World, change: Callable[[World, Table], None]
) -> None:
    world = linked
    change(world, world.log("us"))
    (report,) = world.replicate("eu")
    assert (report.state, report.replicated, report.reason) == (State.STOPPED, 5, None)
    world.write("us", 25, 30)
    world.replicate("eu")
    assert world.arrived("eu") == list(range(30))


def test_deletion_vectors_that_a_table_drops_take_no_row(world: World) -> None:
    log = world.log("us")
    world.write("us", 0, 20)
    world.spark.sql(f"ALTER TABLE {log.sql} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    world.spark.sql(f"DELETE FROM {log.sql} WHERE entry_id = 19")
    assert world.brought("eu") == (State.STOPPED, 19)
    world.spark.sql(f"ALTER TABLE {log.sql} DROP FEATURE deletionVectors")
    world.write("us", 20, 25)
    (report,) = world.replicate("eu")
    assert (report.state, report.replicated, report.reason) == (State.STOPPED, 5, None)


def test_a_first_comparison_brings_a_row_once_that_a_source_holds_twice(world: World) -> None:
    world.write("us", 0, 20)
    _insert_twice(world, world.log("us"))
    world.replicate("eu")
    assert world.arrived("eu") == list(range(25))


def test_a_first_comparison_fails_where_a_source_holds_other_messages_under_one_id(world: World) -> None:
    world.write("us", 0, 20)
    write_deltalake(world.log("us").name, world.entries("us", 3, 5).toArrow(), mode="append")
    for _ in range(2):
        world.fails("eu", "us:1:3, us:1:4 more than once, with other content")
    assert world.arrived("eu") == []
    reconcile_links(world.spark, world.config, "us", "eu")
    assert world.arrived("eu") == list(range(20)), "a person takes one of each"


def test_rows_that_delta_rs_changed_in_a_source_fail_the_link_and_those_it_took_from_a_target_come_again(linked: World) -> None:
    world = linked
    DeltaTable(world.log("eu").name).delete("origin = 'us' AND entry_id >= 15")
    assert world.brought("eu") == (State.STOPPED, 5)
    assert world.arrived("eu") == list(range(20))
    set_property(world.log("us"), "delta.enableChangeDataFeed", "false")
    DeltaTable(world.log("us").name).update(new_values={"key": "'changed'"}, predicate="entry_id < 5")
    world.write("us", 20, 25)
    world.fails("eu", "messages were changed: UPDATE")
    assert world.arrived("eu") == list(range(20)), "nothing was appended"


def test_other_messages_under_ids_that_are_used_fail_the_link_until_they_are_taken_out(linked: World) -> None:
    there, coming = (linked.entries("us", *span).toArrow() for span in ((3, 5), (21, 22)))
    linked.write("us", 20, 25)
    for rows in (there, coming):
        other = rows.set_column(rows.column_names.index("key"), "key", pa.array(["other"] * len(rows)))
        write_deltalake(linked.log("us").name, other, mode="append")
    for _ in range(2):
        linked.fails("eu", "us:1:3, us:1:4, us:1:21 more than once", f"geo reconcile --source us --target eu --topic {TOPIC}")
    assert linked.arrived("eu") == list(range(20)), "nobody can tell which is the producer's"
    clusters = linked.all_tables()
    (failed,) = [one for one in link_statuses(clusters["eu"], clusters, linked.config, str(TOPIC)) if one.link.name == "us->eu"]
    assert failed.lag is not None
    assert failed.lag.messages, "it is known, and young"
    assert not failed.in_sync
    linked.log("us").delta().delete("key = 'other'")
    reconcile_links(linked.spark, linked.config, "us", "eu")
    assert linked.arrived("eu") == list(range(25))
    assert {row["key"] for row in linked.messages("eu").values() if row["entry_id"] == 21} == {"k21"}


def _update(world: World, log: Table) -> None:
    DeltaTable(log.name).update(new_values={"key": "'changed'"}, predicate="origin = 'us' AND entry_id IN (3, 4)")


def _append_again(world: World, log: Table) -> None:
    write_deltalake(log.name, world.entries("us", 3, 5).toArrow(), mode="append")


@pytest.mark.parametrize(("change", "what"), [(_update, "other content than us"), (_append_again, "more than once")])
def test_what_others_changed_or_doubled_in_a_target_fails_the_link_until_it_is_taken_out(
    linked: World, change: Callable[[World, Table], None], what: str
) -> None:
    log = linked.log("eu")
    change(linked, log)
    linked.write("us", 20, 25)
    for _ in range(2):
        linked.fails("eu", what, "us:1:3, us:1:4 ", f"geo reconcile --source us --target eu --topic {TOPIC}")
    linked.log("eu").delta().delete("origin = 'us' AND entry_id IN (3, 4)")
    (report,) = linked.replicate("eu")
    assert report.state is State.STOPPED
    assert linked.arrived("eu") == list(range(25))
    assert {row["key"] for row in linked.messages("eu").values() if row["entry_id"] == 3} == {"k3"}


def test_what_somebody_appended_before_its_producer_published_it_does_not_come_a_second_time(linked: World) -> None:
    coming = linked.entries("us", 20, 25).toArrow()
    unknown = coming.set_column(coming.column_names.index("ledger_id"), "ledger_id", pa.array([9] * 5))
    for rows in (coming.slice(0, 2), unknown):  # the source has no such ledger, so nothing of it is on its way
        write_deltalake(linked.log("eu").name, rows, mode="append")
    for _ in range(2):
        (report,) = linked.replicate("eu")
        assert (report.state, report.replicated) == (State.DELAYED, 0)
        assert "somebody else appended messages in eu that us has not published: us:1:20-21." in (report.reason or "")
    spans = (Span(LedgerKey("", None), 1, 20, 24),)
    append_rows(linked.log("us"), coming, Batch("w", now_us(), spans, {}).encode())
    (report,) = linked.replicate("eu")
    assert (report.state, report.replicated, report.reason) == (State.STOPPED, 3, None)
    linked.write("us", 25, 30)
    assert linked.brought("eu") == (State.STOPPED, 5)
    assert linked.arrived("eu") == sorted([*range(30), *range(20, 25)]), "each once, beside those of ledger 9"


def test_who_keeps_what_was_changed_in_a_target_says_so(linked: World) -> None:
    _update(linked, linked.log("eu"))
    assert linked.replicate("eu")[0].state is State.FAILED
    reconcile_links(linked.spark, linked.config, "us", "eu")
    linked.write("us", 20, 25)
    assert linked.brought("eu") == (State.STOPPED, 5)


def test_a_commit_that_adds_the_same_file_once_more_brings_nothing(linked: World) -> None:
    """As delta-rs does after a lost answer: the next version names the same file."""
    log = linked.log("us")
    tail, folder = Tail.at_newest(log), Path(log.name) / "_delta_log"
    linked.write("us", 20, 25)
    version = log.latest_version()
    lines = (folder / f"{version:020}.json").read_text().splitlines()
    again = [line for line in lines if not line.startswith('{"commitInfo"')]
    (folder / f"{version + 1:020}.json").write_text("\n".join([json.dumps({"commitInfo": {"operation": "WRITE"}}), *again]))
    assert linked.brought("eu") == (State.STOPPED, 5)
    assert linked.arrived("eu") == list(range(25))
    with pytest.raises(RetryableError, match="landed twice"):
        tail.next()
