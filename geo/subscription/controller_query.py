"""The stateful stream that joins the markers of all topics of a cluster: `transformWithState` over `system/markers`, keyed by topic.

It runs the pure controller (geo.subscription.controller) and does what that says. What a row leads to is done once, whatever dies: a
topic's markers of a batch are one commit of its log, and in it stands up to which row of `system/markers` they are. So a batch that is
replayed, and one of a state that was lost and is built anew from the table, writes nothing twice. The readable rows
(`system/version_starts`) have the same numbers, and are written before.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from geo.config.model import Config
from geo.crash import CrashPoint, reach
from geo.errors import FencedError, GeoError, RetryableError, SchemaError
from geo.log.publisher import Publisher
from geo.names import MARKERS_PRODUCER, Topic
from geo.session import ROCKSDB
from geo.streams.query import BatchQuery
from geo.subscription.controller import Settings, TopicController
from geo.subscription.controller_rows import Effect, Forgotten, GivenUp, MoveSubscription, SyncedTo, WriteMarker
from geo.subscription.marker_journal import Shared, controllers_place, decode
from geo.subscription.markers import encode
from geo.tables.cluster import ClusterTables
from geo.tables.files import remove_folder
from geo.tables.ownership import Ownership
from geo.tables.spark_checkpoint import goes_on_from
from geo.text import first_line
from geo.times import from_us
from schemas import MARKERS, VERSION_STARTS

log = logging.getLogger(__name__)

PARTITIONS = "1"
"""Of the states, one a topic of some kilobytes: every partition is a Python worker and a commit of a state store in each batch, and a batch is of few
topics. Frozen into a checkpoint at its creation."""

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
"""A batch writes what it changed, some kilobytes, instead of files of RocksDB's."""

_OUTPUT = "topic STRING, seq BIGINT, effects STRING"
_COLUMNS = StructType([StructField("payload", BinaryType())])


class Processor(StatefulProcessor):
    """The controller of one topic (key: topic). Emits what rows lead to, by their numbers, and once a batch what is known of the topic, if
    that has changed or nobody knows any more what was said."""

    def __init__(self, cluster: str, settings: Settings) -> None:
        self._cluster, self._settings = cluster, settings

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("controller", "state STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # Spark's names
        (topic,) = key
        kept = self._kept.get()
        controller, said = TopicController(self._cluster, topic, self._settings), None
        if kept is not None:
            try:
                controller = TopicController.from_state(self._cluster, topic, json.loads(kept[0]), self._settings)
                said = _of_topic(controller)
            except SchemaError as error:
                log.warning("%s: begun anew: %s", topic, error)
        for seq, fact in sorted((row["seq"], row["fact"]) for row in rows):
            effects = controller.hear(decode(seq, fact))
            if effects:
                yield Row(topic=topic, seq=seq, effects=json.dumps([_told(one) for one in effects]))
        if (now := _of_topic(controller)) != said:
            yield Row(topic=topic, seq=seq, effects=json.dumps([now]))
        if controller.rests:
            yield Row(topic=topic, seq=seq, effects=json.dumps([{"rests": True}]))
        self._kept.update((json.dumps(controller.to_state(), separators=(",", ":")),))

    def close(self) -> None:
        pass


def _of_topic(controller: TopicController) -> dict[str, Any]:
    return {"waits_for": controller.waits_for, "refused": controller.refused}


def _told(effect: Effect) -> dict[str, Any]:
    """An effect on its way from a task to the driver."""
    match effect:
        case WriteMarker(marker, replicate_to):
            payload = base64.b64encode(encode(marker)).decode("ascii")
            return {"marker": marker.kind.value, "payload": payload, "to": None if replicate_to is None else list(replicate_to)}
        case SyncedTo(subscription, snapshot_id, started_us, starts):
            return {
                "subscription": subscription,
                "snapshot": snapshot_id,
                "taken": started_us,
                "starts": dict(starts),
                "sender": None,
            }
        case MoveSubscription(subscription, start, snapshot_id, started_us, sender, _):
            return {
                "subscription": subscription,
                "snapshot": snapshot_id,
                "taken": started_us,
                "starts": {"": start},
                "sender": sender,
            }
        case GivenUp(snapshot_id, missing):
            return {"given_up": snapshot_id, "missing": list(missing)}
        case Forgotten(subscription, here_too):
            return {"forgotten": subscription, "here_too": here_too}
    raise AssertionError(effect)


def _is_of_use(tables: ClusterTables, place: str) -> bool:
    """Whether the query's checkpoint is there. One that is ahead of the table, or behind what that has, is of no use: it is removed, and the
    state built anew from the rows that are there. Raises RetryableError if it cannot be removed from here."""
    if (at := goes_on_from(tables.spark, place)) is None:
        return False
    version, journal = at[0], tables.journal(MARKERS)
    if version is None or version == (newest := journal.version()) or (version < newest and journal.has_commit(version + 1)):
        return True
    log.warning("%s: its checkpoint stands at version %s of %s; it is built anew", journal, version, newest)
    if not remove_folder(place):
        raise RetryableError(f"{place} is not at a version that {journal} has: remove it, and it is built anew.")
    return False


class ControllerQuery:
    """The query of one cluster and what it has open. Its construction starts it."""

    def __init__(
        self,
        tables: ClusterTables,
        config: Config,
        ownership: Ownership,
        trigger: Mapping[str, Any],
        shared: Shared,
    ) -> None:
        given = config.snapshots
        settings = Settings(given.frequency_s, given.timeout_s, given.max_cached)
        self._tables, self._config, self._ownership = tables, config, ownership
        self._publishers: dict[str, Publisher] = {}
        self._shared = shared
        self.markers = 0
        """How many were written."""
        settings_of_spark = {
            "spark.sql.shuffle.partitions": PARTITIONS,
            "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
            CHANGELOG: "true",
        }
        rows = tables.journal(MARKERS).stream(settings_of_spark)
        effects = rows.groupBy("topic").transformWithState(
            statefulProcessor=Processor(tables.cluster.name, settings),
            outputStructType=_OUTPUT,
            outputMode="append",
            timeMode="none",
        )
        place = controllers_place(tables)
        if not _is_of_use(tables, place):
            shared.anew.set()
        self.running = BatchQuery(
            effects, f"geo markers {tables.cluster.name}", self._on_batch, checkpoint=place, trigger=trigger
        )

    def close(self, *, clean: bool) -> None:
        for publisher in self._publishers.values():
            publisher.close(clean=clean)

    def abandon(self) -> None:
        for publisher in self._publishers.values():
            publisher.abandon()

    def refuse_if_replaced(self) -> None:
        self._ownership.refuse_if_replaced()

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        by_topic: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for row in rows.collect():
            by_topic.setdefault(row["topic"], []).extend((row["seq"], one) for one in json.loads(row["effects"]))
        reach(CrashPoint.CONTROLLERS_HEARD)
        if not by_topic:
            return
        self._ownership.refuse_if_lost()
        starts = [one for topic, effects in by_topic.items() for one in self._starts(topic, effects)]
        if starts:
            self._tables.journal(VERSION_STARTS).append(starts)
        reach(CrashPoint.CONTROLLERS_STARTS)
        for topic, effects in by_topic.items():
            self._note(topic, effects)
            try:
                self._write(topic, sorted(effects, key=lambda one: one[0]))
            except (FencedError, RetryableError):
                raise
            except GeoError as error:
                # A person is needed. One topic holds up no other, and what markers say is asked and told again.
                log.warning("%s in %s: its markers are not written: %s", topic, self._tables.cluster.name, first_line(error))
                if (publisher := self._publishers.pop(topic, None)) is not None:
                    publisher.close(clean=False)
        reach(CrashPoint.CONTROLLERS_WRITTEN)

    def _note(self, topic: str, effects: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        for seq, one in effects:
            if "rests" in one:
                self._shared.rests[topic] = seq
            if "given_up" in one:
                missing = ", ".join(one["missing"]) or "nobody, but the log has not its own marker"
                log.warning("%s: snapshot %s was given up; it lacks the answer of %s", topic, one["given_up"], missing)

    def _starts(self, topic: str, effects: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
        """Rows of `system/version_starts`, of one subject the newest alone."""
        here, now = self._tables.cluster.name, datetime.now(timezone.utc)
        found: dict[tuple[str, str], dict[str, Any]] = {}

        def forget(name: str, here_too: bool, sequence: int) -> None:
            told = {(row["subscription"], row["cluster"]): row.asDict() for row in self._told(topic, name)} | found
            for subject, row in told.items():
                if subject[0] == name and (here_too or row["sender"] is None):
                    found[subject] = {"start": None, "sender": None, "sequence": sequence}

        for seq, one in sorted(effects, key=lambda each: each[0]):
            if "waits_for" in one:
                found["", here] = {"waits_for": one["waits_for"] or None, "refused": one["refused"] or None, "sequence": seq}
            if "forgotten" in one:
                forget(one["forgotten"], one["here_too"], seq)
            for cluster, start in one.get("starts", {}).items():
                taken_at, snapshot_id, sender = from_us(one["taken"]), one["snapshot"], one["sender"]
                found[one["subscription"], cluster or here] = {
                    "start": start, "snapshot_id": snapshot_id, "taken_at": taken_at, "sender": sender, "sequence": seq
                }  # fmt: skip
        for (subscription, cluster), fields in found.items():
            yield {"topic": topic, "subscription": subscription, "cluster": cluster, "updated_at": now, **fields}

    def _told(self, topic: str, subscription: str) -> list[Row]:
        return self._tables.journal(VERSION_STARTS).newest(topic=topic, subscription=subscription)

    def _write(self, topic: str, effects: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """The markers of a topic, in one commit, but for those that are there."""
        if not any("marker" in one for _, one in effects):
            return
        publisher = self._publishers.get(topic)
        if publisher is None:
            publisher = Publisher(self._tables, self._config, Topic.parse(topic), MARKERS_PRODUCER, again=False)
            # Whoever owns the controllers is the only one who may write their markers.
            self._publishers[topic] = publisher.open(_COLUMNS, take_over=True)
        rows = [
            {"marker": one["marker"], "payload": base64.b64decode(one["payload"]), "replicate_to": one["to"]}
            for seq, one in effects
            if "marker" in one and seq > publisher.published_up_to
        ]
        if rows:
            publisher.publish_markers(rows, effects[-1][0])
            publisher.record_ends_if_due()
            self.markers += len(rows)
