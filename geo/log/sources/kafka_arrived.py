"""How far the messages of a producer that are in a log say that it read a Kafka topic."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from geo.errors import SourceChangedError
from geo.log.failing_over import Part, safe_end
from geo.log.sources.kafka import RECORD_OFFSET, KafkaReader, source_name
from geo.log.sources.source import Position
from geo.times import in_us

log = logging.getLogger(__name__)


def arrived_places(rows: DataFrame, reader: KafkaReader, topic: str) -> Position:
    """By partition the place behind the last record up to which `rows` surely hold all that its producer published (`safe_end`). They
    are messages of one producer, with the columns of a topic log.

    Messages do not say the id of their Kafka topic, so that record is compared with the one that Kafka has at its offset.
    Raises SourceChangedError if it is another one: offsets mean something else in this Kafka topic.
    """
    parts: dict[int, list[Part]] = defaultdict(list)
    last: dict[tuple[int, int], Row] = {}
    for row in _by_ledger(rows, topic).collect():
        found = Part(row["first"], row["last"], row["entries"], row["greatest"])
        parts[row["partition"]].append(found)
        last[row["partition"], found.greatest] = row["newest"]
    places: Position = {}
    for partition, of_it in sorted(parts.items()):
        if (end := safe_end(of_it)) is None:
            log.warning("Kafka topic %s, partition %d: what arrived of it has a hole; run `geo verify`", topic, partition)
            continue
        _compare(reader, topic, partition, end, last[partition, end])
        places[source_name(topic, partition)] = [end + 1, ""]
    return places


def _by_ledger(rows: DataFrame, topic: str) -> DataFrame:
    """A row for each ledger of the Kafka topic: its entries, the offsets that they say, and its newest message."""
    of_topic = F.when(F.col("properties")["kafka.topic"] == topic, F.col("properties"))
    tagged = rows.withColumn("of", of_topic)
    content = F.struct("key", "payload", "properties", F.unix_micros("event_time").alias("event_us"))
    tagged = tagged.select(
        "ledger_id", "entry_id", F.expr("try_cast(of['kafka.offset'] AS BIGINT)").alias("at"),
        F.expr("try_cast(of['kafka.partition'] AS INT)").alias("partition"), content.alias("content"),
    )  # fmt: skip
    return (
        tagged.groupBy("ledger_id")
        .agg(
            F.min("entry_id").alias("first"),
            F.max("entry_id").alias("last"),
            F.count("*").alias("entries"),
            F.max("partition").alias("partition"),
            F.max("at").alias("greatest"),
            F.max_by("content", "at").alias("newest"),
        )
        .where("greatest IS NOT NULL AND partition IS NOT NULL")  # of another source; an erased message says nothing
    )


def _compare(reader: KafkaReader, topic: str, partition: int, offset: int, arrived: Row) -> None:
    there = reader.record_at(partition, offset)
    if there is None:
        # Where retention took it, reading goes on with the first record that is left, or says which are gone.
        log.warning("Kafka topic %s, partition %d: offset %d is gone, what arrived is not compared", topic, partition, offset)
        return
    assert there[RECORD_OFFSET] == offset
    payload = None if arrived["payload"] is None else bytes(arrived["payload"])
    content: tuple[Any, ...] = (arrived["key"], payload, dict(arrived["properties"]), arrived["event_us"])
    if content != (there["key"], there["payload"], dict(there["properties"]), in_us(there["event_time"])):
        raise SourceChangedError(
            f"Kafka topic {topic}, partition {partition}: the record at offset {offset} is another one than the message that was published "
            "from it: it is another Kafka topic, of another Kafka cluster or made anew, and its offsets say nothing. Nothing was "
            "published. Give the Kafka cluster that the producer read, or publish under another --producer."
        )
