"""The publisher: writes one producer's batches to one topic's log, each in one commit, each once (ledger rules L1-L5).

What a batch is and where its rows come from is decided in geo.log.publish; which entries they get in geo.log.ledgers.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial, reduce
from operator import xor
from typing import cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from geo.config_tree import Config
from geo.crash import CrashPoint, reach
from geo.errors import SourceChangedError, UnsafeError, UsageError, first_line
from geo.log.clock import Stamp, jumped, why_wrong
from geo.log.frames import rows_frame
from geo.log.identity import OFFSET, PUBLISHED, SOURCE, Identity
from geo.log.intake import ERROR, check_columns, new_topic_columns, prepared, row_error
from geo.log.ledger_table import LedgerTable, in_us
from geo.log.ledgers import LEDGER_RANDOM_BITS, Batch, Counted, LedgerKey, Progress, SourceEnd, ledger_id, new_keys, plan
from geo.log.names import Topic, check_producer
from geo.log.numbering import Group, OnDriver, OnSpark, Writer, is_other_rows, is_repeated, numbering
from geo.log.ownership import Ownership, claim, producer_runner, release
from geo.log.tables import ClusterTables
from geo.log.topics import create_topic, partitions, replication_clusters
from schemas import TOPIC_LOG

log = logging.getLogger(__name__)

ROUTES_INTERVAL_S = 10.0
"""How often the topic's policy is read again, by which a `replicate_to` is refused."""

RECORD_INTERVAL_S = 10.0
"""How often the ledgers' ends are recorded. A start after a crash reads the commits since the last record: at one commit
a second that is ten."""

LOOK_INTERVAL_S = 10.0
"""How often the log's commits are looked at, beside each record, and the clock is held against the storage's."""

IDLE_RECORD_S = 300.0
"""When ends are recorded though no further batch comes. Until then a start needs the commits since, which are kept for a day."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Published:
    """What a batch, or a whole run, did."""

    rows: int = 0
    rejected: int = 0
    already_published: int = 0
    commits: int = 0

    def __add__(self, other: Published) -> Published:
        return Published(
            self.rows + other.rows,
            self.rejected + other.rejected,
            self.already_published + other.already_published,
            self.commits + other.commits,
        )


class Publisher:
    """One producer of one topic in one cluster, owned by this process from `open` to `close`.

    Each batch is committed in this order, and each arrow is a named crash point:
    1. new ledgers are recorded in `system/ledgers` with end -1, and before the first batch of a run that there will be more; 2. rows
    and the batch's record are appended to the log in one commit; 3. every RECORD_INTERVAL_S the log's commits since the last
    look are looked at, and the ends are recorded in `system/ledgers`; 4. the caller's stream commits its checkpoint. A start
    folds the batches committed since the newest record, so a death anywhere repeats and skips nothing.

    `clock` says the time, in microseconds since 1970. Calls of several threads follow each other.
    """

    def __init__(
        self, tables: ClusterTables, config: Config, topic: Topic, producer: str, *, clock: Callable[[], int] | None = None
    ) -> None:
        self.tables, self.config, self.topic, self.producer = tables, config, topic, check_producer(producer)
        self._clock = clock or _now_us
        self.total = Published()
        self._progress = Progress()
        self._changed: set[LedgerKey] = set()
        self._appended: tuple[Batch, int] | None = None
        """The last batch since the last look at the log, and what the clock said just before."""
        self._began: tuple[int, int] | None = None
        """The clock and a monotonic one when this run was recorded as begun and the clock was found right; None: not yet."""
        self._recorded_at = self._looked_at = time.monotonic()
        self._routes_read_at = -math.inf
        self._mutex = threading.RLock()
        self._is_open = False
        self._later: threading.Timer | None = None

    # -- start and stop ------------------------------------------------------------------------------------------

    def open(self, frame: DataFrame, dropped: Collection[str] = (), *, take_over: bool = False) -> Publisher:
        """Take ownership, create the topic if it is missing, find out what is already published.

        `frame` has the columns that will be published, `dropped` those of them that only give the order.
        Raises UsageError for columns the topic cannot take, AlreadyOwnedError, UnsafeError.
        """
        self.tables.open_for_writing(self.config)
        own = new_topic_columns(frame, dropped)
        self.log = self.tables.log(self.topic)
        found = self.log.find(TOPIC_LOG)
        planned = found or StructType(cast(StructType, StructType.fromDDL(TOPIC_LOG.ddl)).fields + own)
        check_columns(frame, planned, dropped, self.topic)
        if not found and (parts := partitions(self.tables, self.topic)):
            raise UsageError(f"{self.topic} is partitioned: publish to one of {parts[0]} to {parts[-1].name}.")
        self.columns = found or create_topic(self.tables, self.topic, own)
        runner = producer_runner(self.tables, self.topic, self.producer)
        self._ownership: Ownership = claim(self.tables, [[runner]], take_over=take_over, point=CrashPoint.PUBLISH_CLAIMED)[0]
        try:
            self._ownership.fence(self.log)
            self.ledgers = LedgerTable(self.tables, self.config, self.topic, self.producer, self.log, self._ownership.generation)
            seen = self.log.look()
            if seen is None:
                raise SourceChangedError(f"{self.topic}: its log in {self.tables.cluster.name} went away. Nothing was published.")
            self._check_clock(in_us(self.log.committed_at(seen.version)))
            self._progress, self._changed = self.ledgers.resume(seen, self._clock())
        except BaseException:
            self._ownership.abandon()
            raise
        self._is_open = True
        return self

    def close(self, *, clean: bool = True) -> None:
        """Record the ends and give the ownership back; after an error (`clean=False`) leave both to the next start.

        `clean` says that no batch was stopped in the middle: every append that was begun has returned. The second time it does
        nothing. Raises SourceChangedError as `record`.
        """
        with self._mutex:
            if not self._is_open:
                return
            self._is_open = False
            if self._later is not None:
                self._later.cancel()
            try:
                if clean:
                    if self._changed or self._began or not self.ledgers.complete:
                        self.record(complete=True)
                    release([self._ownership])
            finally:
                self._ownership.abandon()

    def record(self, *, complete: bool = False) -> None:
        """Look at the log, and record the ends of the ledgers that changed (step 3). `complete`: nothing more is published.

        Raises SourceChangedError, with nothing recorded, if the log is not what it was.
        """
        with self._mutex:
            self._look()
            self._record(complete=complete)
            reach(CrashPoint.PUBLISH_ENDS_RECORDED)

    def record_if_due(self, interval_s: float = RECORD_INTERVAL_S) -> None:
        with self._mutex:
            if self._changed and time.monotonic() - self._recorded_at >= interval_s:
                self.record()

    def _record(self, *, complete: bool = False) -> None:
        # One row is enough to say how far all of them are exact.
        keys = self._changed or set(list(self._progress.ledgers)[:1])
        if keys:
            self.ledgers.record(self._progress, keys, complete=complete)
        self._changed, self._recorded_at = set(), time.monotonic()

    def _record_later(self) -> None:
        """See to it that the ends are recorded though no further batch may come."""
        if self._later is None or not self._later.is_alive():
            self._later = threading.Timer(IDLE_RECORD_S, self._record_idle)
            self._later.daemon = True
            self._later.start()

    def _record_idle(self) -> None:
        with self._mutex:
            try:
                if self._is_open and self._changed:
                    self.record()
            except Exception as error:  # the next batch, or the close, meets it again
                log.warning("%s: the ends of producer %s could not be recorded: %s", self.topic, self.producer, first_line(error))

    @property
    def sources(self) -> dict[str, SourceEnd]:
        """How far each source partition is published."""
        return dict(self._progress.sources)

    # -- one batch -----------------------------------------------------------------------------------------------

    def publish(self, rows: DataFrame, identity: Identity, on_rejected: Callable[[list[Row]], None] | None = None) -> Published:
        """Publish the rows that are not yet published, in one commit.

        `rows` may bring a column ERROR: a reason not to publish that row. Rejected rows go to `on_rejected` as
        (source, offset, reason); without it one bad row refuses the whole batch.
        Raises UsageError for bad rows; SourceChangedError if the rows below the end are not those that were published, or the log is
        not what it was; UnsafeError if the rows changed meanwhile or the clock is wrong; FencedError.
        """
        with self._mutex:
            return self._publish(rows, identity, on_rejected)

    def _publish(self, rows: DataFrame, identity: Identity, on_rejected: Callable[[list[Row]], None] | None) -> Published:
        if time.monotonic() - self._routes_read_at >= ROUTES_INTERVAL_S:
            self._read_routes()
        own = row_error(self.tables.cluster.name, self._routes)
        error = F.coalesce(F.col(ERROR), own) if ERROR in rows.columns else own
        ready = prepared(rows, self.columns, self.tables.cluster.name).withColumn(ERROR, error)
        tagged = identity.published(self.tables.spark, identity.tag(ready, self.columns), self._progress.sources).persist()
        try:
            numbered = numbering(tagged, identity, Writer(self.tables.cluster.name, self.producer, self.columns))
            groups = numbered.groups()
            self._check_below(groups, identity)
            fresh = [g for g in groups if not g.published]
            rejected = sum(g.rows for g in fresh if g.bad)
            if rejected:
                self._reject(tagged, identity, rejected, on_rejected)
            result = Published(sum(g.rows for g in fresh if not g.bad), rejected, sum(g.rows for g in groups if g.published))
            if result.rows:
                self._commit(numbered, identity, fresh)
                result += Published(commits=1)
        finally:
            tagged.unpersist()
        self.total += result
        self.record_if_due()
        return result

    def publish_rows(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Publish rows that this program has at hand, given by columns of MESSAGE_INPUT, for all clusters, in one commit.

        They have no identity: called again, they are published again. Of a bytes topic. The caller sees to `record_if_due`.
        Raises SourceChangedError and UnsafeError as `publish`, FencedError.
        """
        with self._mutex:
            source = self._progress.sources.get("")
            counted = [Counted(LedgerKey("", None), len(rows))]
            self._append(counted, {"": f'["{(source.count if source else 0) + len(rows)}"]'}, partial(self._entries, rows))
            self.total += Published(rows=len(rows), commits=1)

    def _entries(self, rows: Sequence[Mapping[str, object]], batch: Batch) -> DataFrame:
        span, published = batch.spans[0], _EPOCH + timedelta(microseconds=batch.publish_time_us)
        same = {"origin": self.tables.cluster.name, "ledger_id": span.ledger_id, "producer": self.producer,
                "publish_time": published, "publish_date": published.date()}  # fmt: skip
        numbered = [{**row, **same, "entry_id": span.first + at} for at, row in enumerate(rows)]
        return rows_frame(self.tables.spark, TOPIC_LOG.types, numbered).coalesce(1)

    def _commit(self, numbered: OnSpark | OnDriver, identity: Identity, fresh: Sequence[Group]) -> None:
        counted = [Counted(g.key, g.rows, g.hash) for g in fresh if not g.bad]
        self._append(counted, {g.key.source: identity.encode(g.last) for g in fresh}, numbered.entries)

    def _append(self, counted: Sequence[Counted], ends: Mapping[str, str], entries: Callable[[Batch], DataFrame]) -> None:
        """Give the counted rows their ledgers and entries, and append what `entries` makes of that with its record."""
        if time.monotonic() - self._looked_at >= LOOK_INTERVAL_S:
            self._look()
        ids = self._new_ledger_ids(len(new_keys(self._progress, counted)))
        batch = plan(self._progress, self.producer, counted, ends, self._clock(), ids)
        self._open_ledgers(batch)
        reach(CrashPoint.PUBLISH_LEDGERS_OPENED)
        reach(CrashPoint.PUBLISH_BEFORE_APPEND)
        before_us = self._clock()
        try:
            self._ownership.append(self.log, entries(batch), batch.encode())
        except (PySparkException, Py4JError, UsageError) as error:
            if is_repeated(error):
                raise UsageError(
                    f"{self.topic}: two rows have the same order columns, so their order, and with it their identity, is open. "
                    "Nothing of this DataFrame was published. Add a column that tells them apart to order_by."
                ) from None
            if is_other_rows(error):
                raise UnsafeError(
                    f"{self.topic}: Spark computed the DataFrame again while it was published, and got other rows than before: their number, "
                    "or their order columns. Nothing of it was published. Make it deterministic, or keep its rows in a table or a "
                    "checkpoint (DataFrame.checkpoint, localCheckpoint) and publish them from there."
                ) from None
            raise
        reach(CrashPoint.PUBLISH_AFTER_APPEND)
        self._progress = self._progress.after(batch)
        self._changed |= {span.key for span in batch.spans}
        self._appended = batch, before_us
        self._record_later()

    def _open_ledgers(self, batch: Batch) -> None:
        """Step 1."""
        before = self._clock(), _monotonic_us()
        begins = self._began is None or jumped(self._began, before)
        opened = self._progress.opened(batch, self.ledgers.away)
        new = opened.ledgers.keys() - self._progress.ledgers.keys()
        self._progress = opened
        if not begins:
            if new:
                self.ledgers.record(opened, new)
            return
        if self._appended is not None:
            self._look()
        self._changed |= new
        self._record()
        came_us = self.ledgers.recorded_us()
        self._check_clock(came_us, None if came_us is None else Stamp(before[0], came_us))
        self._began = before

    def _look(self) -> None:
        """Look at the log's commits since the last look. Raises SourceChangedError, UnsafeError for a wrong clock."""
        appended, clock_us = self._appended or (None, 0)
        self._progress, newest = self.ledgers.look(self._progress, appended)
        newest_us = in_us(self.log.committed_at(newest))
        stamp = None
        if appended is not None:
            own = self.ledgers.known.version
            came_us = newest_us if own == newest else in_us(self.log.committed_at(own))
            stamp = None if came_us is None else Stamp(clock_us, came_us)
        self._check_clock(newest_us, stamp)
        self._appended, self._looked_at = None, time.monotonic()

    def _check_clock(self, newest_us: int | None, stamp: Stamp | None = None) -> None:
        wrong = why_wrong(self._clock(), newest_us, stamp)
        if wrong is not None:
            mine, theirs = (_EPOCH + timedelta(microseconds=us) for us in (wrong.clock_us, wrong.storage_us))
            raise UnsafeError(
                f"{self.topic} in {self.tables.cluster.name}: producer {self.producer} does not publish with a clock that is "
                f"{'ahead of' if wrong.ahead else 'behind'} the storage's. This host says {mine:%Y-%m-%d %H:%M:%S} UTC where the storage "
                f"says {theirs:%Y-%m-%d %H:%M:%S}: messages would expire too {'late' if wrong.ahead else 'early'}, everywhere. Set this "
                f"host's clock (NTP) and start again. If the storage's was wrong, any later commit to {self.log} sets it right."
            )

    def _read_routes(self) -> None:
        """By which clusters a message gets to each other one, by the policy as it is in this cluster's registry now."""
        cluster = self.tables.cluster.name
        local = {cluster: replication_clusters(self.tables, self.topic)}
        others = [name for name in self.config.clusters if name != cluster]
        self._routes = {name: self.config.hubs(cluster, name, self.topic, local) for name in others}
        self._routes_read_at = time.monotonic()

    def _new_ledger_ids(self, count: int) -> list[int]:
        """Distinct ids that no ledger of the cluster has."""
        drawn: set[int] = set()
        while len(drawn) < count:
            while len(drawn) < count:
                drawn.add(ledger_id(self._clock() // 1_000_000, secrets.randbits(LEDGER_RANDOM_BITS)))
            drawn -= self.ledgers.taken(drawn)
        return sorted(drawn)

    def _check_below(self, groups: Sequence[Group], identity: Identity) -> None:
        """A gapless source has below its ends exactly the rows that were published."""
        if not identity.gapless:
            return
        for source, end in self._progress.sources.items():
            here = [g for g in groups if g.key.source == source]
            below = [g for g in here if g.published]
            count, found = sum(g.rows for g in below), reduce(xor, (g.hash for g in below), 0)
            if here and (count, found) != (end.count, end.hash):
                now = f"now has {count} rows up to there" if count != end.count else "now has other rows up to there, as many"
                raise SourceChangedError(
                    f"{self.topic}: producer {self.producer} published {end.count} rows up to order {end.offset}"
                    f"{f' of {source!r}' if source else ''}, the DataFrame {now}. Nothing was published. Rows may only be added after the "
                    "end, and none may change (a column made anew at each call, such as the time of the call, changes all): publish "
                    "other ones under another producer name or publish_id."
                )

    def _reject(self, tagged: DataFrame, identity: Identity, count: int, on_rejected: Callable[[list[Row]], None] | None) -> None:
        bad = tagged.where(F.col(ERROR).isNotNull() & ~F.col(PUBLISHED)).select(
            F.col(SOURCE).alias("source"), identity.as_text(F.col(OFFSET)).alias("offset"), F.col(ERROR).alias("reason")
        )
        if on_rejected is not None:
            on_rejected(bad.orderBy("source").collect())
            return
        examples = [f"- row {', '.join(map(str, row['offset']))}: {row['reason']}" for row in bad.limit(3).collect()]
        raise UsageError(f"{self.topic}: nothing was published, {count} rows cannot be:\n" + "\n".join(examples))


def _now_us() -> int:
    return time.time_ns() // 1000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000
