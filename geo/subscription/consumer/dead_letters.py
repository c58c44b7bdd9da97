"""The dead letter topic of a subscription: messages that were delivered in vain often enough, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from geo.coordination.clock import CLOCKS_APART_US
from geo.delta.columns import growth
from geo.delta.ddl import find_columns
from geo.errors import UsageError
from geo.ids import MessageId
from geo.log.admission import MAX_HEADER_BYTES, header_bytes
from geo.log.publisher import Publisher
from geo.log.source_identity import by_columns
from geo.log.topic_log import ID, user_columns
from geo.names import Topic
from geo.replication.rule import AHEAD_US
from geo.schemas import TOPIC_LOG
from geo.sql_text import identifier
from geo.subscription.acks.ack_state import Epoch
from geo.subscription.consumer.settings import Settings, dead_letter_topic
from geo.times import from_us

REAL_TOPIC, REAL_SUBSCRIPTION, ORIGIN_MESSAGE_ID = "REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID"
"""Properties of a dead letter, as Pulsar names them."""

REASON = "geo.dead_letter_reason"
ERROR = "geo.dead_letter_error"
"""Property with what the function raised on it last, if it did so in the run that gave the message up."""

MOST_CHARACTERS = 1_000
"""Characters of an error's text: a header has room for more, a reader has not."""

MOST_ERRORS = 500
"""Told of the letters of one batch: each is a part of Spark's plan."""

OLDER = timedelta(microseconds=AHEAD_US + CLOCKS_APART_US)
"""So much a letter may be older than its message, since a link lets one be so far ahead. Even older ones need not be read."""

SUBSCRIPTION_EPOCH = "geo.subscription_epoch"
"""Property with the epoch of the subscription in which it was given up, as `1.eu`. After a reset a message that fails again becomes another letter.
"""


class DeadLetters:
    """Publishes dead letters to `<topic>-<subscription>-DLQ`, each message once per cluster and epoch of the subscription: those
    that are there are left out.

    Payload, key, event time, the user's own columns and properties are the message's; one that was not for all clusters stays
    in this one.
    """

    def __init__(self, settings: Settings, max_redeliveries: int) -> None:
        self._settings = settings
        self.topic = dead_letter_topic(settings.topic, settings.name)
        self._reason = f"delivered {max_redeliveries + 1} times and not acknowledged"
        self._publisher: Publisher | None = None
        self._own: list[StructField] = []
        """The user's columns with which it was opened."""

    def publish(self, rows: DataFrame, epoch: Epoch, errors: Mapping[MessageId, str]) -> None:
        """Publish `rows`, which have the columns of the log and were given up in `epoch`, with the errors that are known of
        some. Raises UsageError, with nothing published, if the dead letter topic cannot have their columns."""
        own, log = user_columns(rows.schema), self._settings.tables.log(self.topic)
        message_id = F.concat_ws(":", *ID)
        there = find_columns(log, TOPIC_LOG)
        if there is not None:
            oldest = rows.agg(F.unix_micros(F.min("publish_time"))).collect()[0][0]
            if oldest is None:
                return
            least = from_us(oldest) - OLDER
            recent = (F.col("publish_time") >= F.lit(least)) & (F.col("publish_date") >= F.lit(least.date()))
            of_epoch = F.coalesce(F.col("properties")[SUBSCRIPTION_EPOCH], F.lit(str(Epoch()))) == str(epoch)
            ids = log.read().where(recent & of_epoch).select(F.col("properties")[ORIGIN_MESSAGE_ID].alias("_geo_there"))
            rows = rows.join(ids, message_id == F.col("_geo_there"), "left_anti")
        if rows.isEmpty():
            return
        if there is not None and (why := why_no_letters(self._settings.topic, self.topic, own, there)) is not None:
            raise UsageError(why)
        ours = {
            REAL_TOPIC: F.lit(str(self._settings.topic)),
            REAL_SUBSCRIPTION: F.lit(self._settings.name),
            ORIGIN_MESSAGE_ID: message_id,
            REASON: F.lit(self._reason),
            SUBSCRIPTION_EPOCH: F.lit(str(epoch)),
            ERROR: _error_of(message_id, errors),
        }
        kept = F.map_filter(F.coalesce("properties", F.create_map().cast("map<string,string>")), lambda k, _: ~k.isin(*ours))
        whole = F.map_concat(kept, _properties(ours))
        cut = {**ours, REASON: F.lit(f"{self._reason}; original properties dropped: header would exceed 1 MiB")}
        fits = F.expr(f"{header_bytes('key', '_geo_whole')} <= {MAX_HEADER_BYTES}")
        properties = F.when(fits, F.col("_geo_whole")).otherwise(_properties(cut))
        letters = rows.withColumn("_geo_whole", whole).select(
            "key",
            "payload",
            "event_time",
            *(identifier(field.name) for field in own),
            properties.alias("properties"),
            F.when(F.col("replicate_to").isNotNull(), F.array().cast("array<string>")).alias("replicate_to"),
            F.lit("dead").alias("_geo_letters"),
            F.row_number().over(Window.orderBy(*ID)).cast("bigint").alias("_geo_number"),
        )
        try:
            publisher = self._opened(letters, own)
            last = publisher.writer.sources.get("dead")
            letters = letters.withColumn("_geo_number", F.col("_geo_number") + (last.count if last else 0))
            publisher.publish(letters, by_columns("_geo_letters", "_geo_number"))
        except BaseException:
            self.close(clean=False)  # it may be in the log: another one finds out
            raise

    def close(self, *, clean: bool = True) -> None:
        if self._publisher is not None:
            self._publisher.close(clean=clean)
            self._publisher = None

    def _opened(self, letters: DataFrame, own: list[StructField]) -> Publisher:
        """The publisher of letters with `own` as the user's columns."""
        if self._publisher is not None and self._own != own:
            self.close()
        if self._publisher is None:
            settings = self._settings
            producer = "-".join(["dead-letters", *settings.share.split()])
            publisher = Publisher(settings.tables, settings.config, self.topic, producer)
            given = letters.drop("_geo_letters", "_geo_number").schema
            self._publisher = publisher.open(given, take_over=settings.take_over, grow=True)
            self._own = own
        return self._publisher


def why_no_letters(topic: Topic, letters: Topic, own: Sequence[StructField], there: StructType) -> str | None:
    """Tells why rows of `topic` with these columns of its `own` cannot be dead letters in `letters`, and what to do. The log of these has the columns
    `there`. None: they can.
    """
    if own and not user_columns(there):
        told = f"it is a bytes topic, and {topic.name} has the columns {', '.join(one.name for one in own)}"
    elif clashes := growth(there, own).clashes:
        told = "; ".join(clash.told(f"in {topic.name}", "in it") for clash in clashes)
    else:
        return None
    return (
        f"{letters} cannot take dead letters of {topic}: {told}. None was published. Read what it holds, delete it (`geo topics delete`), and make "
        f"it again with the columns of {topic.name} (`geo topics create --columns`)."
    )


def _properties(ours: Mapping[str, Column]) -> Column:
    """MAP<STRING, STRING> of those that are not NULL."""
    return F.map_filter(F.create_map(*(part for k, v in ours.items() for part in (F.lit(k), v))), lambda _, v: v.isNotNull())


def _error_of(message_id: Column, errors: Mapping[MessageId, str]) -> Column:
    """STRING, what is known of why a message failed; NULL if nothing is."""
    told = [(str(one), error[:MOST_CHARACTERS]) for one, error in errors.items() if error][:MOST_ERRORS]
    known = F.create_map(*(F.lit(part) for pair in told for part in pair)) if told else F.create_map().cast("map<string,string>")
    return F.try_element_at(known, message_id)
