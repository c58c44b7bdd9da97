"""The publisher: writes one producer's batches to one topic's log, each in one commit, each once (ledger rules L1-L5).

What a batch is and where its rows come from is decided in geo.log.publish; which entries they get in geo.log.ledgers.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from geo.config.model import Config
from geo.delta.arrow_rows import rows_table
from geo.delta.columns import Growth
from geo.delta.ddl import find_checked
from geo.delta.definition import columns_of
from geo.delta.engine import TableSnapshot
from geo.delta.protocol import TYPE_WIDENING
from geo.delta.small_batch import FEW
from geo.errors import UsageError
from geo.journal.cluster import ClusterTables
from geo.log.admission import ERROR, Routes, as_named, growth_of, new_topic_columns, prepared, row_error
from geo.log.housekeeping import open_for_writing
from geo.log.ledger_writer import LedgerWriter
from geo.log.ledgers import Batch, LedgerKey, RowsOfKey
from geo.log.numbering.held_rows import HeldRows, hold_few, hold_frame, hold_spans, workspace_of
from geo.log.numbering.holding import KEY, EntryRun, log_lines
from geo.log.numbering.on_spark import OnSpark
from geo.log.numbering.tagging import Tagging
from geo.log.numbering.tallies import Common, Rejected
from geo.log.partitioned import grow_topic, refuse_partitioned
from geo.log.published_rows import explained, refuse_changed
from geo.log.source_identity import RowIdentity
from geo.log.sources.source import SourceBatch
from geo.log.topic_log import user_columns
from geo.log.topic_policies import replication_clusters
from geo.log.topics import ensure_topic, refuse_deleted
from geo.names import Topic, check_producer
from geo.now import now_us
from geo.schemas import TOPIC_LOG
from geo.schemas.topic_log import MESSAGE_INPUT
from geo.streams import timetable
from geo.streams.checkpoint import forget
from geo.text import counted

log = logging.getLogger(__name__)

_AT_HAND = {name: TOPIC_LOG.types[name] for name in (*MESSAGE_INPUT, "marker")}
"""The columns that rows at hand may have."""


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a batch, or of a whole run."""

    rows: int = 0
    rejected: int = 0
    already_published: int = 0
    commits: int = 0
    held_after: Mapping[str, float] = field(default_factory=dict)
    """Seconds, by region that was waited for, after which it was seen to hold what was published."""

    def __add__(self, other: Published) -> Published:
        return Published(
            self.rows + other.rows,
            self.rejected + other.rejected,
            self.already_published + other.already_published,
            self.commits + other.commits,
            {**self.held_after, **other.held_after},
        )


class Publisher:
    """One producer of one topic in one cluster, owned by this process from `open` to `close`: rows in, commits out.

    `clock` says the time, in microseconds since 1970. Not for several threads at once, but for `close`.
    """

    writer: LedgerWriter
    """Its ledgers, once it is open."""

    def __init__(
        self,
        tables: ClusterTables,
        config: Config,
        topic: Topic,
        producer: str,
        *,
        clock: Callable[[], int] | None = None,
        again: bool = True,
    ) -> None:
        """`again`: as a person asks who publishes, also to a topic that was deleted."""
        self.tables, self.config, self.topic, self.producer = tables, config, topic, check_producer(producer)
        self.total = Published()
        self._clock, self._again = clock or now_us, again
        self._routes_read_at = -math.inf
        self._was_few: bool | None = None
        """The last batch had few rows, so the next one may, and need not be held to be looked at; None before the first."""

    # -- start and stop ------------------------------------------------------------------------------------------

    def open(self, given: StructType, dropped: Collection[str] = (), *, take_over: bool = False, grow: bool = False) -> Publisher:
        """Take ownership, create the topic if it is missing, let its columns grow if they may, find out what is already published.

        `given` are the columns of the rows that will be published, `dropped` those of them that only give the order.
        Raises UsageError for columns the topic cannot take, AlreadyOwnedError, UnsafeError, also for a topic that was deleted and that
        nobody asks to make again.
        """
        open_for_writing(self.tables, self.config)
        log_table = self.tables.log(self.topic)
        seen = find_checked(log_table, TOPIC_LOG)
        found = StructType(columns_of(TOPIC_LOG)) if seen is None else seen.columns
        named = as_named(given, found.names)
        own = [] if seen is not None else new_topic_columns(named, dropped, self.topic)
        planned = StructType(found.fields + own)
        needed = growth_of(named, planned, dropped, self.topic, grow=grow)
        if seen is None:
            refuse_partitioned(self.tables, self.topic)
        if seen is None and not self._again:
            refuse_deleted(self.tables, self.topic)
        self.columns = ensure_topic(self.tables, self.topic, own, again=self._again, seen=seen)
        if self.columns != planned:  # another process was quicker
            needed = growth_of(as_named(given, self.columns.names), self.columns, dropped, self.topic, grow=grow)
        self._log = log_table
        self.writer = LedgerWriter(
            self.tables, self.config, self.topic, self.producer, log_table, clock=self._clock, take_over=take_over
        )
        try:
            self._set_columns(given, needed, seen, grow=grow)
        except BaseException:
            self.writer.close(clean=False)
            raise
        return self

    def take(self, given: StructType, *, grow: bool) -> None:
        """From now on the rows have these columns, for which the topic grows if it may. Raises UsageError for columns that it cannot take, with
        nothing done; FencedError."""
        seen = self._log.snapshot(again=True)
        self.columns = self.columns if seen is None else seen.columns  # others may have given it columns meanwhile
        needed = growth_of(as_named(given, self.columns.names), self.columns, (), self.topic, grow=grow)
        self._set_columns(given, needed, seen, grow=grow)
        self._read_routes()

    def _set_columns(self, given: StructType, needed: Growth, seen: TableSnapshot | None, *, grow: bool) -> None:
        """Let the topic have what is needed for rows with these columns, and take them from now on. `seen`: its log before. Where it may `grow`
        its partitions are made alike, whatever an earlier call did not come to."""
        own = user_columns(self.columns)
        if needed or (grow and own and self.topic.partitioned):
            self.writer.refuse_if_replaced()
            wanted = {one.name: one for one in (*own, *needed.added, *needed.widened)}
            grow_topic(self.tables, self.topic, list(wanted.values()))
        if needed:
            seen = self._log.snapshot(again=True)
            assert seen is not None, "it was there"
            self.columns = seen.columns
            log.info("%s: has now %s, as what is published", self.topic, needed.told)
        self._former_types = {} if seen is None or TYPE_WIDENING not in seen.properties else seen.former_types
        self._given_columns = as_named(given, self.columns.names)
        self._given = self._given_columns.names
        self._renamed = {one: name for one, name in zip(given.names, self._given, strict=True) if one != name}
        vars(self).pop("_prepared", None)
        self._common = Common(self.tables.cluster.name, self.producer, self.columns)

    @cached_property
    def _prepared(self) -> dict[str, Column]:
        """Made once: a column is some calls into the JVM."""
        sql = prepared(self._given_columns, self.columns, self.tables.cluster.name)
        return {name: F.expr(one) for name, one in sql.items()}

    @cached_property
    def _held_at(self) -> str:
        """The place where rows are held until they are written. Where tasks run on this host, it is on its own disk, if the tables are on none."""
        parts = ("held", self.topic.path, self.producer)
        is_far = self.tables.port is not None and str(self.tables.spark.sparkContext.master).startswith("local")
        place = self.tables.run_checkpoint(*parts) if is_far else self.tables.checkpoint(*parts)
        forget(place)  # what a run that was killed has left
        return place

    def close(self, *, clean: bool = True) -> None:
        """Close the ledgers, as `LedgerWriter.close`."""
        self.writer.close(clean=clean)

    # -- one batch -----------------------------------------------------------------------------------------------

    def publish(
        self, rows: DataFrame | SourceBatch, identity: RowIdentity, on_rejected: Callable[[list[Rejected]], None] | None = None
    ) -> Published:
        """Publish the rows that are not yet published, in one commit. They have the columns that `open` was given.

        `rows` may have a column ERROR: a reason not to publish that row. Rejected rows go to `on_rejected`; without it one bad row refuses the
        whole batch. Raises UsageError for bad rows. SourceChangedError if the rows below the end are not those that were published, or the log is
        not what it was. UnsafeError if the rows changed meanwhile or the clock is wrong; FencedError.
        """
        if time.monotonic() - self._routes_read_at >= timetable.ROUTES_S:
            self._read_routes()
        if identity.name is not None:
            self.writer.recall([identity.name])

        with ExitStack() as held, explained(self.topic, self.tables.spark, rows, identity):
            numbered = self._numbering(rows, identity, held)
            tallies = numbered.tallies()
            refuse_changed(self.producer, self.topic, self.writer.sources, tallies, identity)
            fresh = [t for t in tallies if not t.is_published]
            rejected = sum(t.rows for t in fresh if t.bad)
            if rejected:
                self._reject(numbered, rejected, on_rejected)
            self._was_few = sum(t.rows for t in tallies) <= FEW
            result = Published(sum(t.rows for t in fresh if not t.bad), rejected, sum(t.rows for t in tallies if t.is_published))
            if result.rows:
                counted = [RowsOfKey(t.key, t.rows, t.hash) for t in fresh if not t.bad]
                self.writer.append(
                    counted, {t.key.source: identity.encode(t.key.source, t.last) for t in fresh}, numbered.entries
                )
                result += Published(commits=1)
        self.total += result
        self.writer.record_ends_if_due()
        return result

    def publish_rows(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Publish rows that this program has at hand, given by columns of MESSAGE_INPUT, in one commit; for all clusters where they
        have no `replicate_to`.

        They have no identity: called again, they are published again. Of a bytes topic. The caller sees to `record_ends_if_due`.
        Raises SourceChangedError and UnsafeError as `publish`, FencedError.
        """
        source = self.writer.sources.get("")
        self._append(rows, (source.count if source else 0) + len(rows))

    def publish_markers(self, rows: Sequence[Mapping[str, object]], up_to: int) -> None:
        """Publish protocol messages, given by marker, payload and replicate_to, in one commit. It says that all is published that
        follows from what had a number up to `up_to`: `published_up_to` tells it after any end. Raises as `publish_rows`."""
        self._append(rows, up_to)

    @property
    def published_up_to(self) -> int:
        """The number that the last `publish_markers` gave; 0 before the first."""
        end = self.writer.sources.get("")
        return 0 if end is None else int(end.parts[0])

    def _append(self, rows: Sequence[Mapping[str, object]], end: int) -> None:
        """Append rows that this program has at hand, in their order; their source's offset is `end` afterwards."""
        keys = [LedgerKey.of("", cast("Sequence[str] | None", row.get("replicate_to"))) for row in rows]
        counted = Counter(keys)
        codes = {key: code for code, key in enumerate(counted)}
        held = rows_table({**_AT_HAND, KEY: "BIGINT"}, [{**row, KEY: codes[key]} for row, key in zip(rows, keys, strict=True)])

        def entries(batch: Batch) -> pa.Table:
            runs = {codes[span.key]: EntryRun(span.ledger_id, span.first, counted[span.key], ()) for span in batch.spans}
            return log_lines(held, runs, self._common.of(batch))

        self.writer.append([RowsOfKey(*one) for one in counted.items()], {"": json.dumps([str(end)])}, entries)
        self.total += Published(rows=len(rows), commits=1)

    def _numbering(self, rows: DataFrame | SourceBatch, identity: RowIdentity, held: ExitStack) -> HeldRows | OnSpark:
        """The way for one batch. `held` releases at its end what is held. Raises UsageError with REPEATED."""
        spark, common = self.tables.spark, self._common
        workspace = workspace_of(f"{self._held_at}/{secrets.token_hex(8)}", self._log, self.columns.names, held)
        if isinstance(rows, SourceBatch) and workspace is not None and not self._renamed:
            # Of its sources alone: what was published otherwise under this name has other ends.
            ends = {name: int(end.parts[0]) for name, end in self.writer.sources.items() if name in identity.marks}
            columns = [name for name in self._given if name in self.columns.names]
            tagging = Tagging(rows.source.source, rows.source.offset, columns, ends, self._routes)
            return hold_spans(spark, rows, tagging, common, workspace)

        def tag(rows: DataFrame) -> DataFrame:
            ready = rows.withColumns(self._prepared).withColumn(ERROR, self._error)
            return identity.mark_published(spark, identity.tag(ready, self.columns, self._former_types), self.writer.sources)

        frame = (rows.frame(spark) if isinstance(rows, SourceBatch) else rows).withColumnsRenamed(self._renamed)
        if workspace is not None:
            if self._was_few and (few := hold_few(tag(frame), identity, common)) is not None:
                return few
            return hold_frame(frame, tag, identity, common, workspace)
        tagged = tag(frame)
        if not self._was_few:
            held.callback(tagged.persist().unpersist)
        if self._was_few is not False and (few := hold_few(tagged, identity, common)) is not None:
            return few
        if self._was_few:
            held.callback(tagged.persist().unpersist)
        return OnSpark(tagged, identity, common, held)

    def _read_routes(self) -> None:
        """Derive the hubs on the way to every other cluster, under this cluster's current topic policy, and what is refused by them. Raises
        UnsafeError for a topic that is being deleted. Who deletes it asks for producers after it said so, and this asks after it claimed, so one of
        both sees the other."""
        cluster = self.tables.cluster.name
        local = {cluster: replication_clusters(self.tables, self.topic)}
        others = [name for name in self.config.clusters if name != cluster]
        self._routes = Routes(cluster, {name: self.config.hubs(cluster, name, self.topic, local) for name in others})
        refused = row_error(self._given, self._routes)
        self._error = F.expr(f"coalesce({ERROR}, {refused})" if ERROR in self._given else refused)
        self._routes_read_at = time.monotonic()

    def _reject(self, numbered: HeldRows | OnSpark, count: int, on_rejected: Callable[[list[Rejected]], None] | None) -> None:
        if on_rejected is not None:
            on_rejected(list(numbered.rejected()))
            return
        examples = [f"- row {', '.join(row.offset)}: {row.reason}" for row in numbered.rejected(3)]
        raise UsageError(f"{self.topic}: nothing was published, {counted(count, 'row')} cannot be:\n" + "\n".join(examples))
