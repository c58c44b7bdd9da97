"""Sources that ended: moved out of `system/ledgers`, which every start of a producer reads, into `system/finished`. There a source is looked up when
it is met again.

A finished file, or a `publish_id`, stays known for ever by 16 bytes of its name and its end. So it is never published again, and a file that grows
after all goes on where it ended. A file is known also by its stamp, so that a new name makes no new file of it. Its ledgers are forgotten: what comes
then goes to new ones.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from geo.config.model import LONGEST_OUTAGE_S
from geo.delta.scan import few_rows
from geo.journal import upkeep
from geo.journal.cluster import ClusterTables
from geo.late import F
from geo.log.ledgers import SourceEnd
from geo.log.sources.json_mark import IS_MARKED, SAME, STAMP
from geo.names import Topic
from geo.schemas import FINISHED, LEDGERS
from geo.sql_text import literal
from geo.times import in_us

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)

IDLE_FOR = timedelta(seconds=LONGEST_OUTAGE_S)
"""A source counts as ended once nothing was published or recorded of it for so long. Until then the ends of its ledgers are held against the log. A
producer that goes on with an older one records its end first (`LedgerWriter`). So it is not moved while a commit is on its way.
"""

LEAST = 1_000
"""So many sources are moved at least: a start reads a thousand rows in hundredths of a second, moving them is two Spark jobs."""

AGAIN_AFTER = IDLE_FOR / 2
"""Half of IDLE_FOR. What is moved sooner after a topic was deleted was published before: what comes since has to rest for IDLE_FOR first. Half of
that leaves room for clocks of two hosts.
"""

_FORGOTTEN = "", "forgotten"
"""Producer and source of the row that says when a topic was deleted."""


def key_of(source: str) -> bytes:
    """Return the key by which a source is looked up."""
    return hashlib.sha256(source.encode()).digest()[:16]


def recall(tables: ClusterTables, topic: Topic, producer: str, sources: Collection[str]) -> dict[str, SourceEnd]:
    """The ends of those of the sources that ended and were moved, since the topic was deleted last."""
    if not sources:
        return {}
    nobody, forgotten = _FORGOTTEN
    names = {key_of(source): source for source in sources}
    rows = tables.journal(FINISHED).newest(topic=str(topic), producer=[producer, nobody], source=[*names, key_of(forgotten)])
    deleted_us = [row["sequence"] for row in rows if row["producer"] == nobody]
    since_us = max(deleted_us) + AGAIN_AFTER // timedelta(microseconds=1) if deleted_us else -1
    return {
        names[bytes(row["source"])]: SourceEnd(row["source_end"], row["source_count"])
        for row in rows
        if row["producer"] == producer and row["sequence"] >= since_us
    }


def forget(tables: ClusterTables, topic: Topic, now: datetime) -> None:
    """The topic is deleted: nothing of its sources is known any more, nor what somebody is just moving who read them before."""
    nobody, forgotten = _FORGOTTEN
    row = {"topic": str(topic), "producer": nobody, "source": key_of(forgotten), "source_end": "", "source_count": 0}
    finished = tables.journal(FINISHED)
    had_any = finished.exists()
    finished.append([{**row, "sequence": in_us(now)}])
    if had_any:
        upkeep.keep_where(finished, f"topic <> {literal(str(topic))} OR producer = {literal(nobody)}")


def move_ended(tables: ClusterTables, now: datetime) -> int:
    """Move the sources that ended, if they are LEAST; how many. Two commits: a crash between them leaves sources in both tables, where
    the row in `system/ledgers` counts. Only sources that say what they are: files of JSON lines, and ids of a `publish_id`."""
    ledgers, finished = tables.journal(LEDGERS), tables.journal(FINISHED)
    if upkeep.count_files(ledgers) == 0 or (
        (few := few_rows(ledgers.table, ledgers.table.latest_version())) is not None and len(few) < LEAST
    ):
        return 0
    if (rows := ledgers.newest_rows()) is None:
        return 0
    ended = _ended(rows, now - IDLE_FOR).withColumn("sequence", F.lit(in_us(now)))
    count = ended.count()
    if count < LEAST:
        return 0
    upkeep.upgrade(ledgers)  # first: a program that does not look in `finished` must not read what is left
    known_as = F.explode(F.array_compact(F.array("source", _stamped())))
    names = ended.withColumn("source", known_as).withColumn("source", _key())
    finished.append_rows(names.select(*FINISHED.names).coalesce(1))
    there = finished.rows()
    assert there is not None, "it has just been written"
    upkeep.replace(ledgers, lambda newest: _without(newest, there, now - IDLE_FOR))
    log.info("%s: %d sources that ended were moved to %s", ledgers, count, finished)
    return count


def _ended(rows: DataFrame, before: datetime) -> DataFrame:
    """Select, from the newest row of each ledger key, the sources that `_resting` gives and that say what they are. Columns as FINISHED but
    `sequence`, with the name of the source."""
    named = F.col("source").startswith("id:") | F.col("source_end").rlike(IS_MARKED)
    ended = _resting(rows, before).where(F.col("is_never_compared") & F.col("source_end").isNotNull() & named)
    return ended.drop("is_never_compared")


def _without(rows: DataFrame, finished: DataFrame, before: datetime) -> DataFrame:
    """The rows but for all those of a source that `_resting` gives and that is finished at the end that its newest row says."""
    moved = finished.select("topic", "producer", F.col("source").alias("key"), "source_end")
    gone = _resting(rows, before).withColumn("key", _key()).join(moved, moved.columns, "left_semi")
    return rows.join(gone.select("topic", "producer", "source"), ["topic", "producer", "source"], "left_anti").select(
        *rows.columns
    )


def _resting(rows: DataFrame, before: datetime) -> DataFrame:
    """The sources of which nothing was published or recorded since `before`, with the end that their newest row says. But for one that has the
    newest row of its producer: that one says up to where all are exact. Columns: topic, producer, source, source_end, source_count,
    is_never_compared."""
    found = rows.groupBy("topic", "producer", "source").agg(
        F.max_by(F.struct("source_end", "source_count"), _order()).alias("end"),
        F.max(F.greatest("publish_time", "recorded_at")).alias("youngest"),
        F.max(_order()).alias("own"),
        F.bool_and(F.col("source_hash") == 0).alias("is_never_compared"),
    )
    last = rows.groupBy("topic", "producer").agg(F.max(_order()).alias("last"))
    found = found.join(F.broadcast(last), ["topic", "producer"])
    found = found.where((F.col("own") < F.col("last")) & (F.col("youngest") < F.lit(before)))
    return found.select("topic", "producer", "source", "end.*", "is_never_compared")


def _stamped() -> Column:
    """The name by which a file is known whatever it is called; NULL where its end has no stamp with an inode."""
    stamp = F.regexp_extract("source_end", STAMP, 1)
    return F.when(stamp != "", F.concat(F.lit(SAME), stamp))


def _order() -> Column:
    return F.struct(*LEDGERS.order)


def _key() -> Column:
    """The column of `key_of`."""
    return F.unhex(F.substring(F.sha2("source", 256), 1, 32))
