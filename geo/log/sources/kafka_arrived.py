"""Finds out how far a producer read a Kafka topic, by its messages that are in a log, and whether that topic is this one."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from geo.errors import SourceChangedError
from geo.log.failing_over import Part, safe_end
from geo.log.sources.kafka import KafkaReader
from geo.log.sources.kafka_rows import RECORD_OFFSET, source_name
from geo.log.sources.source import Position
from geo.times import in_us

log = logging.getLogger(__name__)


class KafkaMessages:
    """Reads what messages of one producer, rows of a topic log, say of the Kafka topic that `reader` reads. `topic_id` is its id now."""

    def __init__(self, reader: KafkaReader, topic: str, topic_id: str) -> None:
        self._reader, self._topic, self._topic_id = reader, topic, topic_id

    def sources(self, rows: DataFrame) -> set[str]:
        """The partitions of which there are any."""
        found = self._tagged(rows).where("at IS NOT NULL").select("partition").distinct().collect()
        return {source_name(self._topic, row["partition"]) for row in found if row["partition"] is not None}

    def places(self, rows: DataFrame, floors: Mapping[int, int], *, expires: bool) -> Position:
        """Return, by partition, the place behind the last record up to which `rows` surely hold all that the producer published (`safe_end`). None
        of a partition of which nothing is sure. `floors`: by ledger the first entry that the link was to replicate. Unless the topic `expires` a
        ledger that lacks it has a hole.

        Messages do not say the id of their Kafka topic, so that record is compared with the one that Kafka has at its offset (`refuse_others`).
        """
        parts: dict[int, list[Part]] = defaultdict(list)
        newest: dict[tuple[int, int], tuple[int, int]] = {}
        for row in self._by_ledger(rows, floors).collect():
            begins = row["first"] if expires else floors.get(row["ledger_id"], 0)
            first, last = (0, -1) if row["first"] is None else (begins, row["last"])
            found = Part(first, last, row["entries"], row["greatest"])
            parts[row["partition"]].append(found)
            newest[row["partition"], found.greatest] = (row["ledger_id"], row["newest"])
        ends = {partition: end for partition, of_it in sorted(parts.items()) if (end := safe_end(of_it)) is not None}
        self.refuse_others(self.content(rows, [newest[one] for one in ends.items()]))
        return {source_name(self._topic, partition): [end + 1, ""] for partition, end in ends.items()}

    def is_without_id(self, places: Position) -> bool:
        """True if the topic's id does not say that `places` are of this topic: the brokers are too old to have any, or were."""
        return any(not (self._topic_id and self._reader.mark_of(place)) for place in places.values())

    def content(self, rows: DataFrame, entries: Collection[tuple[int, int]]) -> list[Row]:
        """Those of the messages that are these entries, by ledger and entry, and say a record of the topic."""
        if not entries:
            return []
        ledgers, numbers = (", ".join(sorted({str(one[at]) for one in entries})) for at in (0, 1))
        exact = ", ".join(f"'{ledger}:{entry}'" for ledger, entry in entries)
        # The statistics of files know the first two.
        rows = rows.where(
            f"ledger_id IN ({ledgers}) AND entry_id IN ({numbers}) AND concat(ledger_id, ':', entry_id) IN ({exact})"
        )
        content = ("key", "payload", "properties", F.unix_micros("event_time").alias("event_us"))
        return self._tagged(rows, *content).where("at IS NOT NULL AND partition IS NOT NULL").collect()

    def refuse_others(self, messages: Collection[Row]) -> None:
        """Raises SourceChangedError if what Kafka has at the offset of one of the messages (`content`) is another record. Offsets mean something
        else in this Kafka topic then."""
        for message in sorted(messages, key=lambda message: int(message["partition"])):
            _compare(self._reader, self._topic, message["partition"], message["at"], message)

    def _by_ledger(self, rows: DataFrame, floors: Mapping[int, int]) -> DataFrame:
        """A row for each ledger of the Kafka topic. It has the entries from the floor on, the greatest offset that they say, and which entry says
        it. Without content: it is all that the producer ever published."""
        listed = F.from_json(F.lit(json.dumps({str(ledger): floor for ledger, floor in floors.items()})), "map<string, bigint>")
        floor = F.coalesce(listed[F.col("ledger_id").cast("string")], F.lit(0))
        return (
            self._tagged(rows)
            .withColumn("wanted", F.when(F.col("entry_id") >= floor, F.col("entry_id")))
            .groupBy("ledger_id")
            .agg(
                F.min("wanted").alias("first"),
                F.max("wanted").alias("last"),
                F.count("wanted").alias("entries"),
                F.max("partition").alias("partition"),
                F.max("at").alias("greatest"),
                F.max_by("entry_id", "at").alias("newest"),
            )
            .where("greatest IS NOT NULL AND partition IS NOT NULL")  # of another source; an erased message says nothing
        )

    def _tagged(self, rows: DataFrame, *content: Any) -> DataFrame:
        """The rows' ids and `content`, with the record that each says, in `partition` and `at`: NULL of another source."""
        of = F.when(F.col("properties")["kafka.topic"] == self._topic, F.col("properties"))
        tagged = rows.withColumn("of", of)
        at, partition = (
            F.expr(f"try_cast(of['kafka.{name}'] AS {type_})") for name, type_ in (("offset", "BIGINT"), ("partition", "INT"))
        )
        return tagged.select("ledger_id", "entry_id", at.alias("at"), partition.alias("partition"), *content)


def _compare(reader: KafkaReader, topic: str, partition: int, offset: int, arrived: Row) -> None:
    there = reader.record_at(partition, offset)
    if there is None:
        # Where retention took it, reading goes on with the first record that is left, or says which are gone.
        log.warning("Kafka topic %s, partition %d: offset %d is gone, its message is not compared", topic, partition, offset)
        return
    assert there[RECORD_OFFSET] == offset
    payload = None if arrived["payload"] is None else bytes(arrived["payload"])
    content: tuple[Any, ...] = (arrived["key"], payload, dict(arrived["properties"]), arrived["event_us"])
    # Earlier versions published times before 1970 as none.
    time_us = None if arrived["event_us"] is None else in_us(there["event_time"])
    if content != (there["key"], there["payload"], dict(there["properties"]), time_us):
        raise SourceChangedError(
            f"Kafka topic {topic}, partition {partition}: the record at offset {offset} is another one than the message that was published "
            "from it: it is another Kafka topic, of another Kafka cluster or made anew, and its offsets say nothing. Nothing was "
            "published. Give the Kafka cluster that the producer read, or publish under another --producer."
        )
