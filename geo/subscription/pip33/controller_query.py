"""The stateful stream that joins the markers of all topics of a cluster: `transformWithState` over `system/markers`, keyed by topic.

It runs the pure controller (geo.subscription.pip33.controller) and does what that says. What a row leads to is done once, whatever dies. A topic's
markers of a batch are one commit of its log, and in it stands up to which row of `system/markers` they are. So a batch that is replayed, and one of
a state that was lost and is built again from the table, writes nothing twice. The readable rows (`system/version_starts`) have the same numbers,
and are written before.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from geo.config.model import Config, Snapshots
from geo.coordination.ownership import Ownership
from geo.crash import CrashPoint, reach
from geo.errors import FencedError, GeoError, RetryableError, SetupError, UsageError
from geo.faults import FAULTS, needs_person, session_is_gone
from geo.journal.cluster import ClusterTables
from geo.log.publisher import Publisher
from geo.log.topic_log import open_log
from geo.log.topics import refuse_deleted
from geo.names import MARKERS_PRODUCER, Topic
from geo.schemas import MARKERS, VERSION_STARTS
from geo.session import ROCKSDB
from geo.streams.query import BatchQuery
from geo.streams.workers import Workers
from geo.subscription.pip33.controller import TopicController
from geo.subscription.pip33.controller_rows import (
    Effect,
    GivenUp,
    MayStart,
    Notes,
    Rests,
    StateDropped,
    TopicStanding,
    WriteMarker,
)
from geo.subscription.pip33.marker_journal import controllers_place, decode, markers_producer
from geo.subscription.pip33.markers import SubscriptionUpdate, encode
from geo.subscription.versions.source_offsets import DeltaEnd, goes_on, read_ends
from geo.subscription.versions.version_starts import VersionStart
from geo.text import first_line
from geo.times import from_us

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE = 8
"""Topics whose markers are written side by side. To begin with a topic takes 0.05 s on a local disk and some seconds elsewhere. It takes a minute
while a cluster does not answer that may hold more of its ledgers.
"""

REPLAYS = 3
"""So often a batch is tried of which a topic's markers cannot be written, for a reason that may go away. Then the topic is left out of it."""

PARTITIONS = "1"
"""Partitions of the states, one a topic of some kilobytes. Every partition is a Python worker and a commit of a state store in each batch, and a
batch is of few topics. Frozen into a checkpoint at its creation.
"""

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
"""A batch writes what it changed, some kilobytes, instead of files of RocksDB's."""

_OUTPUT = "topic STRING, seq BIGINT, told BINARY"
"""Columns that a task hands to the driver, as Python has them: a batch's own, kept nowhere."""

_COLUMNS = StructType([StructField("payload", BinaryType())])


class Processor(StatefulProcessor):
    """The controller of one topic (key: topic). Emits what rows lead to, by their numbers. Once a batch it emits what is known of the topic, if that
    has changed or nobody knows any more what was said.
    """

    def __init__(self, cluster: str, settings: Snapshots) -> None:
        self._cluster, self._settings = cluster, settings

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("controller", "state STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # Spark's names
        (topic,) = key
        kept = self._kept.get()
        if kept is None:
            controller, said = TopicController(self._cluster, topic, self._settings), None
        else:
            controller = TopicController.from_state(self._cluster, topic, json.loads(kept[0]), self._settings)
            said = _standing(controller)
        for seq, fact in sorted((row["seq"], row["fact"]) for row in rows):
            effects = controller.handle(decode(seq, fact))
            if effects:
                yield Row(topic=topic, seq=seq, told=pickle.dumps(effects))
        if (now := _standing(controller)) != said:
            yield Row(topic=topic, seq=seq, told=pickle.dumps([now]))
        if controller.rests:
            yield Row(topic=topic, seq=seq, told=pickle.dumps([Rests()]))
        self._kept.update((json.dumps(controller.to_state(), separators=(",", ":")),))

    def close(self) -> None:
        pass


_Told = tuple[int, Effect | TopicStanding | Rests]
"""The number of a row, and what it led to."""


def _standing(controller: TopicController) -> TopicStanding:
    return TopicStanding(controller.waits_for, controller.refused)


def _remove_if_of_no_use(tables: ClusterTables, place: str) -> None:
    """Remove the query's checkpoint if it does not go on in the table as it is. Then the state is built again from the rows that are there. And of
    one without a planned batch what a state store left. Asked before the tail writes anything, so a table that was put back has not grown again.
    Raises RetryableError if it cannot be removed from here.
    """
    names = tables.files.plain_names(f"{place}/offsets") or ()
    planned = sorted(int(name) for name in names if name.isascii() and name.isdigit())[-2:]
    if not planned:
        # A state store that was still writing when the checkpoint was removed leaves this folder, and Spark does not begin beside it. Elsewhere
        # than on a local disk it stays: nothing tells it from a checkpoint that never was.
        tables.files.remove_folder(f"{place}/state")
        return
    journal, ends = tables.journal(MARKERS), list[DeltaEnd]()
    with suppress(UsageError, UnicodeDecodeError):  # of what nobody can read nobody goes on
        ends = [end for batch in planned for end in read_ends("\n".join(tables.files.lines(f"{place}/offsets/{batch}"))).tables]
    if goes_on(ends, journal.table.latest_version(), journal.table.has_commit):
        return
    log.warning("%s: its controllers do not go on from %s; they are built anew", journal, place)
    if not tables.files.remove_folder(place):
        raise RetryableError(f"{place} does not go on in {journal} as that is: remove it, and it is built anew.")


class ControllerQuery:
    """The query of one cluster and what it has open. Its construction starts it."""

    def __init__(
        self, tables: ClusterTables, config: Config, ownership: Ownership, trigger: Mapping[str, Any], notes: Notes
    ) -> None:
        if find_spec("google") is None or find_spec("google.protobuf") is None:
            raise SetupError(
                "consumers of versions take protobuf, by which Spark's transformWithState talks to Python: pip install 'delta-geo[fold]'"
            )
        if tables.spark.version.startswith("4.0."):
            raise SetupError(
                "consumers of versions take Spark 4.1 or newer: that of Spark 4.0 has no transformWithState of rows in Python."
            )
        self._tables, self._config, self._ownership = tables, config, ownership
        self._publishers: dict[str, Publisher] = {}
        """Publishers by topic."""
        self._notes = notes
        self.markers = 0
        """Count of markers that were written."""
        settings_of_spark = {
            "spark.sql.shuffle.partitions": PARTITIONS,
            "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
            CHANGELOG: "true",
        }
        rows = tables.journal(MARKERS).stream(settings_of_spark)
        effects = rows.groupBy("topic").transformWithState(
            statefulProcessor=Processor(tables.cluster.name, config.snapshots),
            outputStructType=_OUTPUT,
            outputMode="append",
            timeMode="none",
        )
        place = controllers_place(tables)
        _remove_if_of_no_use(tables, place)
        self.running = BatchQuery(
            effects, f"geo markers {tables.cluster.name}", self._on_batch, checkpoint=place, trigger=trigger
        )

    def close(self) -> None:
        """Give back what is owned, once the query has ended. A topic of which that fails holds up no other."""
        for topic, closed in self._side_by_side({topic: one.close for topic, one in self._publishers.items()}).items():
            try:
                closed.result()
            except FAULTS as error:
                self._warn(topic, "what it wrote last is found out by the next start", error)

    def abandon(self) -> None:
        for publisher in list(self._publishers.values()):
            publisher.writer.abandon()

    def _side_by_side(self, calls: Mapping[str, Callable[[], T]]) -> dict[str, Future[T]]:
        """Do it for each topic, for AT_ONCE at a time; every Future returned is done."""
        workers = Workers(AT_ONCE, f"geo-markers-{self._tables.cluster.name}")
        found = {topic: workers.submit(call) for topic, call in calls.items()}
        workers.close()
        wait(found.values())
        return found

    def _warn(self, topic: str, what: str, error: Exception) -> None:
        log.warning("%s in %s: %s: %s", topic, self._tables.cluster.name, what, first_line(error))

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        by_topic: dict[str, list[_Told]] = {}
        for row in rows.collect():
            by_topic.setdefault(row["topic"], []).extend((row["seq"], one) for one in pickle.loads(row["told"]))  # noqa: S301  # of a task of this query
        for told in by_topic.values():
            told.sort(key=lambda one: one[0])
        reach(CrashPoint.CONTROLLERS_HEARD)
        if not by_topic:
            return
        self._ownership.refuse_if_lost()
        starts = [one for topic, told in by_topic.items() for one in self._starts(topic, told)]
        self._tables.journal(VERSION_STARTS).append(starts)
        reach(CrashPoint.CONTROLLERS_STARTS)
        writing: dict[str, Callable[[], int]] = {}
        for topic, told in by_topic.items():
            self._note(topic, told)
            if any(isinstance(one, WriteMarker) for _, one in told):
                writing[topic] = partial(self._write, topic, told)
        for topic, written in self._side_by_side(writing).items():
            try:
                self.markers += written.result()
            except FAULTS as error:
                if session_is_gone(error):
                    raise
                self._ownership.refuse_if_lost()  # else it may be who deletes the topic
                if not needs_person(error) and self._fails_again(topic, batch_id) < REPLAYS:
                    raise
                # One topic holds up no other for long. Requests and answers are asked for again; of a lost update the tail tells.
                self._warn(topic, "its markers are not written", error)
                self._let_go(topic)
                for seq, one in by_topic[topic]:
                    if isinstance(one, WriteMarker) and isinstance(one.marker, SubscriptionUpdate):
                        self._notes.lost_updates[topic] = seq
        reach(CrashPoint.CONTROLLERS_WRITTEN)

    def _fails_again(self, topic: str, batch_id: int) -> int:
        """Counts how often its markers could not be written in this batch, with now."""
        batch, times = self._notes.failed.get(topic, (batch_id, 0))
        times = times + 1 if batch == batch_id else 1
        self._notes.failed[topic] = batch_id, times
        return times

    def _note(self, topic: str, told: Sequence[_Told]) -> None:
        for seq, one in told:
            match one:
                case Rests():
                    self._notes.rests[topic] = seq
                case GivenUp(snapshot_id, missing):
                    why = (
                        f"it lacks the answer of {', '.join(missing)}"
                        if missing
                        else "its own request is not in the log, or others are to be asked now"
                    )
                    log.warning("%s: snapshot %s was given up: %s", topic, snapshot_id, why)

    def _starts(self, topic: str, told: Sequence[_Told]) -> Iterable[VersionStart]:
        """Rows of `system/version_starts`, of one subject the newest alone."""
        name, here = Topic.parse(topic), self._tables.cluster.name
        found: dict[tuple[str, str], VersionStart] = {}
        for seq, one in told:
            match one:
                case TopicStanding(waits_for, refused):
                    found["", here] = VersionStart(name, "", here, seq, waits_for=waits_for or None, refused=refused or None)
                case StateDropped(subscription, here_too):
                    rows = self._tables.journal(VERSION_STARTS).read(VersionStart, topic=topic, subscription=subscription)
                    known = {(subscription, row.cluster): row for row in rows} | found
                    gone = [at for at, row in known.items() if at[0] == subscription and (here_too or row.told_by is None)]
                    found |= {at: VersionStart(name, *at, seq) for at in gone}
                case MayStart(subscription, snapshot_id, started_us, starts, sender):
                    taken = snapshot_id, from_us(started_us), sender
                    found |= {
                        (subscription, cluster): VersionStart(name, subscription, cluster, seq, start, *taken)
                        for cluster, start in starts.items()
                    }
        return found.values()

    def _write(self, topic: str, told: Sequence[_Told]) -> int:
        """The markers of a topic, in one commit, but for those that are there. Returns how many were not."""
        publisher = self._publisher(topic)
        rows = [
            {"marker": one.marker.kind.value, "payload": encode(one.marker), "replicate_to": one.replicate_to}
            for seq, one in told
            if isinstance(one, WriteMarker) and seq > publisher.published_up_to
        ]
        if rows:
            publisher.publish_markers(rows, told[-1][0])
            publisher.writer.record_ends_if_due()
        return len(rows)

    def _publisher(self, topic: str) -> Publisher:
        """That of the last batch, unless it was replaced: by who deleted the topic, which may be there again."""
        if (found := self._publishers.get(topic)) is not None:
            try:
                found.writer.refuse_if_replaced()
                return found
            except FencedError:
                self._let_go(topic)
        return self._opened(topic)

    def _let_go(self, topic: str) -> None:
        if (publisher := self._publishers.pop(topic, None)) is not None:
            publisher.writer.abandon()

    def _opened(self, topic: str) -> Publisher:
        """Whoever owns the controllers alone may write their markers, so it is taken from an owner of former ones, whether that lives or not. But
        not from who came since: that one deletes the topic. Raises GeoError as `Publisher.open`, and for a topic that was deleted."""
        name = Topic.parse(topic)
        self._refuse(name)
        since = self._ownership.precedes(markers_producer(self._tables, name))
        publisher = Publisher(self._tables, self._config, name, MARKERS_PRODUCER, again=False).open(_COLUMNS, take_over=not since)
        try:
            self._refuse(name)  # after the claim: who deletes it, or owns the controllers next, looks at claims after its own
        except GeoError:
            with suppress(*FAULTS):
                publisher.close()
            raise
        self._publishers[topic] = publisher
        return publisher

    def _refuse(self, topic: Topic) -> None:
        self._ownership.refuse_if_lost()
        refuse_deleted(self._tables, topic)
        open_log(self._tables, topic)  # nobody makes it again by this
