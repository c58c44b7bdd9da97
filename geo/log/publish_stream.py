"""A publisher that runs: over the batches of a user's streaming DataFrame, or over those of a source of ours, which this process
plans."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from geo.errors import RetryableError, UnsafeError
from geo.journal.event_rate import EventKind
from geo.journal.events import events_of
from geo.log.numbering.tallies import Rejected
from geo.log.other_producer import NAMED, Continued, OtherProducer
from geo.log.publisher import Published, Publisher
from geo.log.source_identity import by_batch, by_columns
from geo.log.source_note import SourceNote
from geo.log.sources.source import Place, Position, Source, SourceBatch
from geo.log.topic_log import user_columns
from geo.progress import Progress
from geo.reasons import Reason
from geo.streams import timetable
from geo.streams.checkpoint import checkpoint_id, last_planned_batch
from geo.streams.loop import BatchLoop
from geo.streams.query import BatchQuery, stop_between_batches
from geo.streams.trigger import interval_s, parse_trigger
from geo.text import counted

log = logging.getLogger(__name__)


class PublishStream:
    """The stream that runs, started by the construction of a FrameStream or a SourceStream. Stop it with `stop`, or wait with
    `await_termination`.

    Rejected rows go to files below `rejects`, as JSON lines with the keys `reject_keys` for their source and their place in it.
    """

    running: BatchQuery | BatchLoop
    """Query or loop that runs, and what became of it."""

    def __init__(
        self,
        publisher: Publisher,
        given: StructType,
        rejects: str | None,
        reject_keys: tuple[str, str],
        *,
        take_over: bool,
        grow: bool = False,
    ) -> None:
        self.publisher, self._reject_keys = publisher, reject_keys
        self._rejects = rejects or publisher.tables.checkpoint("rejects", publisher.topic.path, publisher.producer)
        self.rejects_file: str | None = None
        self.first_reject: str | None = None
        """The first row that this run rejected: its place and why."""
        self._name = f"geo publish {publisher.topic} in {publisher.tables.cluster.name} by {publisher.producer}"
        self._checkpoint = publisher.tables.checkpoint("publish", publisher.topic.path, publisher.producer)
        publisher.open(given, take_over=take_over, grow=grow)
        self.resumed_from = publisher.writer.sources
        """Place of each source partition when this stream started."""
        self.began_at = publisher.writer.ends
        """Ends of its ledgers then."""

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        state = "runs" if self.running.is_active else "does not run"
        return f"<{type(self).__name__} {self._name}: {state}, {self.published.rows:,} published, {self.published.rejected:,} rejected>"

    @property
    def published(self) -> Published:
        """The result of this run so far."""
        return self.publisher.total

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream ends (always, with the available-now trigger) or the time is over; True if it ended.

        Raises what ended it, as it was raised in the batch. A query that somebody else stopped in the middle of a batch ends without an error. The
        next start finds out, as after an error, what became of the batch.
        """
        if not self.running.wait(timeout_s):
            return False
        if (error := self.running.error) is not None:
            self.publisher.close(clean=False)
            raise error
        self.close()
        return True

    def close(self, *, clean: bool = True) -> None:
        """Give the producer back, once the stream has ended. Unless that is `clean`, the next start finds out what became of the
        last batch."""
        if clean and self.running.in_batch:
            log.warning("%s: the stream was stopped in the middle of a batch", self.publisher.topic)
        self.publisher.close(clean=clean and not self.running.in_batch)

    def abandon(self) -> None:
        """Close as `close(clean=False)` does, without waiting for anybody."""
        self.publisher.writer.abandon()

    def refuse_if_replaced(self) -> None:
        """Raises FencedError if another process took the producer over."""
        self.publisher.writer.refuse_if_replaced()

    def stop(self) -> None:
        """Let the running batch end, then stop."""
        self.running.stop()
        self.await_termination()

    def _write_rejects(self, name: str, bad: list[Rejected], more: Callable[[Rejected], Mapping[str, Any]]) -> None:
        """A file per batch, whose name a replay gives again, so that no reject is reported twice."""
        source, offset = self._reject_keys
        rows = sorted(bad, key=lambda row: (row.source, int(row.offset[0]), row.key or ""))
        lines = [
            json.dumps({source: row.source, offset: int(row.offset[0]), **more(row), "reason": row.reason}, ensure_ascii=False)
            for row in rows
        ]
        first = f"{rows[0].source}, {offset} {rows[0].offset[0]}: {rows[0].reason}"
        self.first_reject = self.first_reject or first
        self.rejects_file = f"{self._rejects}/{name}.jsonl"
        self.publisher.tables.files.replace(self.rejects_file, lines)
        said = f"{counted(len(bad), 'row')}, see {self.rejects_file}; the first: {first}"
        log.warning("%s: rejected: %s", self.publisher.topic, said)
        events_of(self.publisher.tables).note(
            EventKind.REJECT, f"producer {self.publisher.producer} of {self.publisher.topic}", "rejected", topic=self.publisher.topic,
            code=Reason.REFUSED_ROWS, reason=said,
        )  # fmt: skip


class FrameStream(PublishStream):
    """Publishes a user's streaming DataFrame. Its rows are identified by the batches of its checkpoint."""

    running: BatchQuery

    def __init__(self, publisher: Publisher, df: DataFrame, trigger: str, *, take_over: bool = False, grow: bool = False) -> None:
        options = parse_trigger(trigger)
        super().__init__(publisher, df.schema, None, ("stream", "batch"), take_over=take_over, grow=grow)
        try:
            for query in df.sparkSession.streams.active:  # from whom it was taken over: Spark runs one of a name and checkpoint
                if query.name == self._name:
                    stop_between_batches(query, timetable.STOP_S)
            self._check_checkpoint(df.sparkSession)
            self.running = BatchQuery(df, self._name, self._on_batch, checkpoint=self._checkpoint, trigger=options)
        except BaseException:
            publisher.close(clean=False)
            raise

    @property
    def query(self) -> StreamingQuery:
        """Spark's own handle."""
        return self.running.query

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        if self.publisher.writer.ledgers.checkpoint_id is None:
            self.publisher.writer.ledgers.checkpoint_id = checkpoint_id(rows.sparkSession, self._checkpoint)

        def reject(bad: list[Rejected]) -> None:
            # What tells the rows of one batch apart, since nothing numbers them: the beginning of the key.
            self._write_rejects(f"batch-{batch_id:06d}", bad, lambda row: {"key": row.key and row.key[:200]})

        self.publisher.publish(rows, by_batch(batch_id), reject)

    def _check_checkpoint(self, spark: SparkSession) -> None:
        """A stream identified by batch numbers must have the checkpoint they were counted in, and not an older copy of it. A batch planned again
        under an old number would hold other rows than those published under it.
        """
        ends = self.publisher.writer.sources
        if not ends:
            return
        last = max(int(end.parts[0]) for end in ends.values())
        stored = checkpoint_id(spark, self._checkpoint)
        if (
            stored is None
            or stored != self.publisher.writer.ledgers.checkpoint_id
            or last_planned_batch(spark, self._checkpoint) < last
        ):
            raise UnsafeError(
                f"producer {self.publisher.producer} of {self.publisher.topic} has published batch {last} of a checkpoint that is "
                f"no longer at {self._checkpoint}, or only an older copy of it is. Nobody can tell what was published from what is new; "
                "nothing was published. Put the checkpoint back, or publish under a new producer name and accept repeats."
            )


class SourceStream(PublishStream):
    """Publishes a source of ours, batch by batch. Each end that is published says at which place reading goes on.

    Beside them a note is kept of places that no end says (SourceNote): where the first start began, and what was read without publishing anything.
    With `other` it goes on at the place of that producer of another cluster, if that is further.
    """

    running: BatchLoop

    def __init__(
        self,
        publisher: Publisher,
        source: Source,
        trigger: str,
        *,
        rejects: str | None = None,
        take_over: bool = False,
        other: OtherProducer | None = None,
        grow: bool = False,
    ) -> None:
        """`grow`: as the source gets columns, and wider types, the topic gets them."""
        every_s = interval_s(trigger)
        self._source, self._ends_here = source, every_s is None
        self._grows = grow
        super().__init__(publisher, source.columns, rejects, source.reject_keys, take_over=take_over, grow=grow)
        self._note = SourceNote(publisher.tables, publisher.topic, publisher.producer)
        self.continued: tuple[Continued, ...] = ()
        """The place where it goes on for another producer."""
        try:
            self._reader = source.open(self.resumed_from)
            self._position: Position | None = None
            self._progress = Progress(log, str(publisher.topic), "messages")
            self._asked: set[str] = set()
            """Source partitions that were recalled, or of which nothing is known."""
            self._more = self._note.read(self.resumed_from)
            """Places that are noted, since no end says them."""
            published = {name: self._published_place(name) for name in self.resumed_from}
            self._known = {**{name: place for name, place in published.items() if place is not None}, **self._more}
            """The place where source partitions go on of which something is known."""
            if other is not None:
                own = {name: place for name, place in self._known.items() if self._reader.has(name)}
                self.continued = other.continued(own)
                words, is_warning = other.words(self.continued, self._reader)
                log.log(logging.WARNING if is_warning else logging.INFO, "%s: %s", self._name, words)
                self._known |= {one.source: one.place for one in self.continued}
            self.running = BatchLoop(self._name, self._step, self._reader.close, every_s=every_s)
        except BaseException:
            publisher.close(clean=False)
            raise

    def _step(self) -> bool:
        if self._position is None:
            self._position = self._begin()
        self._position = start = self._recalled(self._position)
        end = self._reader.next(start)
        spans = self._reader.spans(start, end)
        moved = {name: place for name, place in end.items() if place != start.get(name)}
        if spans:
            self._refuse_without_place(moved.keys() - start.keys())
            if (blocks := self._reader.blocks) != self._source.blocks:
                self._source = replace(self._source, blocks=blocks)
                self.publisher.take(self._source.columns, grow=self._grows)
            marks = {name: self._reader.mark_of(place) for name, place in moved.items()}
            # An end at the last row would leave out what was read behind it: once that is gone, it would look unread.
            through = {name: place[0] - 1 for name, place in moved.items()} if self._source.has_gaps else {}
            identity = by_columns(self._source.source, self._source.offset, marks, through)
            done = self.publisher.publish(SourceBatch(self._source, self._reader, spans), identity, self._reject)
            if self._ends_here:
                self._progress.add(done.rows, self._reader.part_of(end))
        self._position = end
        self._note_more(moved)
        return bool(moved)  # also behind what has no rows there may be some

    def _recalled(self, position: Position) -> Position:
        """The position with the places of source partitions that ended long ago and are there again, or still."""
        unread = [name for name in self._reader.unread(position) if name not in self._asked]
        if not unread:
            return position
        self._asked.update(unread)
        ends = self.publisher.writer.recall(unread).items()
        places = {name: place for name, end in ends if (place := self._reader.place_of(name, end)) is not None}
        return {**places, **position}

    def _begin(self) -> Position:
        position = self._reader.begin(self._known)
        if self.continued and (new := sorted(position.keys() - self._known.keys())):
            places = ", ".join(self._reader.say(name, position[name]) for name in new[:NAMED])
            log.warning(
                "%s: nothing is known of %s, which begins at: %s", self._name, counted(len(new), "source partition"), places
            )
        self._note_more(position)
        if self._ends_here:
            self._reader.end_here()
        return position

    def _refuse_without_place(self, begun: Collection[str]) -> None:
        """Raises UnsafeError for a source partition that would be read from its beginning though some of it is published."""
        if unsure := sorted(name for name in begun if name in self.publisher.writer.sources):
            raise UnsafeError(
                f"{self.publisher.topic}: {unsure[0]} was published up to {self.publisher.writer.sources[unsure[0]].parts[0]} by producer "
                f"{self.publisher.producer}, which did not record where reading goes on there. Nothing was published. Publish it under "
                "another producer name from there on."
            )

    def _reject(self, bad: list[Rejected]) -> None:
        self._refuse_if_grown()
        first = min(bad, key=lambda row: (row.source, int(row.offset[0])))
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{first.source[-80:]}-{int(first.offset[0]):09}").strip("-.")
        self._write_rejects(name, bad, lambda row: {})

    def _refuse_if_grown(self) -> None:
        """Raises RetryableError if the topic got other columns since the source was made: a row that names one must not be rejected."""
        publisher = self.publisher
        if self._source.own is None or (seen := publisher.tables.log(publisher.topic).snapshot()) is None:
            return
        if {field.name for field in user_columns(seen.columns)} != self._source.own:
            raise RetryableError(
                f"{publisher.topic}: has other columns now than when its source was opened. Nothing of this batch was published or rejected; it "
                "is read again with them."
            )

    def _published_place(self, name: str) -> Place | None:
        """Tells where what is published says that a source partition goes on."""
        end = self.publisher.writer.sources.get(name)
        return None if end is None else self._reader.place_of(name, end)

    def _note_more(self, moved: Position) -> None:
        """Note the places that no end says, if they are others than before."""
        said = {name for name, place in moved.items() if place == self._published_place(name)}
        more = {**self._more, **moved}
        more = {name: place for name, place in more.items() if name not in said}
        if more != self._more:
            self._more = more
            self._note.replace(more, self.publisher.writer.sources)
