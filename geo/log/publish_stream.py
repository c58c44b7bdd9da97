"""A publisher that runs: over the batches of a user's streaming DataFrame, or over those of a source of ours, which this process plans."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from geo.errors import UnsafeError
from geo.log.ledgers import SourceEnd
from geo.log.publisher import Published, Publisher
from geo.log.source_batch import SourceBatch, SourceReader, columns_of
from geo.log.source_identity import by_batch, by_columns
from geo.log.tallies import Rejected
from geo.streams.loop import BatchLoop
from geo.streams.query import BatchQuery
from geo.streams.trigger import interval_s, parse_trigger
from geo.tables.spark_checkpoint import checkpoint_id, last_planned_batch

log = logging.getLogger(__name__)


class PublishStream:
    """What runs, started by the construction of a FrameStream or a SourceStream. Stop it with `stop`, or wait with `await_termination`.

    Rejected rows go to files below `rejects`, as JSON lines with the keys `reject_keys` for their source and their place in it.
    """

    running: BatchQuery | BatchLoop
    """What runs, and what became of it."""

    def __init__(
        self, publisher: Publisher, given: StructType, rejects: str | None, reject_keys: tuple[str, str], *, take_over: bool
    ) -> None:
        self._publisher, self._reject_keys = publisher, reject_keys
        self._rejects = rejects or publisher.tables.checkpoint("rejects", publisher.topic.path, publisher.producer)
        self.rejects_file: str | None = None
        self._name = f"geo publish {publisher.topic} in {publisher.tables.cluster.name} by {publisher.producer}"
        self._checkpoint = publisher.tables.checkpoint("publish", publisher.topic.path, publisher.producer)
        publisher.open(given, take_over=take_over)
        self.resumed_from = publisher.sources
        """How far each source partition was published when this stream started."""

    def __str__(self) -> str:
        return self._name

    @property
    def published(self) -> Published:
        """What this run has done so far."""
        return self._publisher.total

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream ends (always, with the available-now trigger) or the time is over; True if it ended.

        Raises what ended it, as it was raised in the batch. A query that somebody else stopped in the middle of a batch ends
        without an error, and like after one the next start finds out what became of the batch.
        """
        if not self.running.wait(timeout_s):
            return False
        if (error := self.running.error) is not None:
            self._publisher.close(clean=False)
            raise error
        self.close()
        return True

    def close(self, *, clean: bool = True) -> None:
        """Give the producer back, once the stream has ended. Unless that is `clean`, the next start finds out what became of the last
        batch."""
        if clean and self.running.in_batch:
            log.warning("%s: the stream was stopped in the middle of a batch", self._publisher.topic)
        self._publisher.close(clean=clean and not self.running.in_batch)

    def abandon(self) -> None:
        """As `close(clean=False)`, and waits for nobody."""
        self._publisher.abandon()

    def refuse_if_replaced(self) -> None:
        """Raises FencedError if another process took the producer over."""
        self._publisher.refuse_if_replaced()

    def stop(self) -> None:
        """Let the running batch end, then stop."""
        self.running.stop()
        self.await_termination()

    def _write_rejects(self, name: str, bad: list[Rejected], more: Callable[[Rejected], Mapping[str, Any]]) -> None:
        """A file per batch, whose name a replay gives again, so that no reject is reported twice."""
        source, offset = self._reject_keys
        lines = [
            json.dumps({source: row.source, offset: int(row.offset[0]), **more(row), "reason": row.reason}, ensure_ascii=False)
            for row in sorted(bad, key=lambda row: (row.source, int(row.offset[0]), row.key or ""))
        ]
        self.rejects_file = f"{self._rejects}/{name}.jsonl"
        self._publisher.tables.files.replace(self.rejects_file, lines)
        log.warning("%s: %d rows were rejected, see %s", self._publisher.topic, len(bad), self.rejects_file)


class FrameStream(PublishStream):
    """Publishes a user's streaming DataFrame. Its rows are identified by the batches of its checkpoint."""

    running: BatchQuery

    def __init__(self, publisher: Publisher, df: DataFrame, trigger: str, *, take_over: bool = False) -> None:
        options = parse_trigger(trigger)
        super().__init__(publisher, df.schema, None, ("stream", "batch"), take_over=take_over)
        try:
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
        if self._publisher.ledgers.checkpoint_id is None:
            self._publisher.ledgers.checkpoint_id = checkpoint_id(rows.sparkSession, self._checkpoint)

        def reject(bad: list[Rejected]) -> None:
            # What tells the rows of one batch apart, since nothing numbers them: the beginning of the key.
            self._write_rejects(f"batch-{batch_id:06d}", bad, lambda row: {"key": row.key and row.key[:200]})

        self._publisher.publish(rows, by_batch(batch_id), reject)

    def _check_checkpoint(self, spark: SparkSession) -> None:
        """A stream identified by batch numbers must have the checkpoint they were counted in, and not an older copy of it:
        a batch planned anew under an old number would hold other rows than those published under it."""
        ends = self._publisher.sources
        if not ends:
            return
        last = max(int(json.loads(end.offset)[0]) for end in ends.values())
        stored = checkpoint_id(spark, self._checkpoint)
        if (
            stored is None
            or stored != self._publisher.ledgers.checkpoint_id
            or last_planned_batch(spark, self._checkpoint) < last
        ):
            raise UnsafeError(
                f"producer {self._publisher.producer} of {self._publisher.topic} has published batch {last} of a checkpoint that is "
                f"no longer at {self._checkpoint}, or only an older copy of it is. Nobody can tell what was published from what is new; "
                "nothing was published. Put the checkpoint back, or publish under a new producer name and accept repeats."
            )


@dataclass(frozen=True, slots=True)
class Source:
    """A source of ours: `source` and `offset` are the columns that place a row, `reader` makes its reader from how far each source partition is
    published. `mark` as in `Identity`. `notes_each_batch`: what is published does not say where reading goes on."""

    source: str
    offset: str
    reader: Callable[[Mapping[str, SourceEnd]], SourceReader]
    mark: str = ""
    notes_each_batch: bool = False


class SourceStream(PublishStream):
    """Publishes a source of ours, batch by batch. What is published says where to go on; beside it a note is kept of the position, which
    may be lost, and counts for nothing where it says other ends than what is published."""

    running: BatchLoop

    def __init__(
        self,
        publisher: Publisher,
        source: Source,
        trigger: str,
        *,
        rejects: str | None = None,
        reject_keys: tuple[str, str],
        take_over: bool = False,
    ) -> None:
        every_s = interval_s(trigger)
        self._source, self._identity = source, by_columns(source.source, source.offset, source.mark)
        super().__init__(publisher, columns_of(source.reader({}).blocks), rejects, reject_keys, take_over=take_over)
        self._note = f"{self._checkpoint}/position.json"
        try:
            self._reader = source.reader(self.resumed_from)
            self._ends_here = every_s is None
            self._position: dict[str, Any] | None = None
            self.running = BatchLoop(self._name, self._step, self._reader.close, every_s=every_s)
        except BaseException:
            publisher.close(clean=False)
            raise

    def _step(self) -> bool:
        if self._position is None:
            self._position = self._begin()
        end = self._reader.next(self._position)
        spans = self._reader.spans(self._position, end)
        if spans:
            self._publisher.publish(SourceBatch(self._reader, spans), self._identity, self._reject)
        moved, self._position = end != self._position, end
        if moved and self._source.notes_each_batch:
            self._write_note(end)
        return bool(spans)

    def _begin(self) -> dict[str, Any]:
        noted = self._noted()
        position = self._reader.begin(noted)
        if not noted:
            self._write_note(position)
        if self._ends_here:
            self._reader.end_here()
        return position

    def _reject(self, bad: list[Rejected]) -> None:
        first = min(bad, key=lambda row: (row.source, int(row.offset[0])))
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{first.source[-80:]}-{int(first.offset[0]):09}").strip("-.")
        self._write_rejects(name, bad, lambda row: {})

    def _noted(self) -> dict[str, Any]:
        """The position that was noted last, of what was published as it is."""
        try:
            note = json.loads("\n".join(self._publisher.tables.files.lines(self._note)))
            position, ends = dict(note["position"]), dict(note["ends"])
        except (ValueError, KeyError, TypeError):
            return {}
        if not self._source.notes_each_batch:
            return position
        now = self._ends()
        return {name: place for name, place in position.items() if ends.get(name) == now.get(name)}

    def _write_note(self, position: Mapping[str, Any]) -> None:
        self._publisher.tables.files.replace(self._note, [json.dumps({"position": position, "ends": self._ends()})])

    def _ends(self) -> dict[str, str]:
        return {name: end.offset for name, end in self._publisher.sources.items()}
