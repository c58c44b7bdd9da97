"""Publishing as users call it: a DataFrame, a stream, or JSON lines. Decides identity, rejects and trigger; no ids."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from geo.config.model import Config
from geo.config.secret import Secret
from geo.errors import UnsafeError, UsageError
from geo.log.ledgers import SourceEnd
from geo.log.publisher import Published, Publisher
from geo.log.source_identity import Identity, by_batch, by_columns, by_id, by_order
from geo.log.sources import jsonl, kafka
from geo.log.tallies import Rejected
from geo.names import Topic
from geo.session import require_delta
from geo.streams.query import BatchQuery
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.tables.cluster import connect
from geo.tables.spark_checkpoint import checkpoint_id, last_planned_batch

log = logging.getLogger(__name__)

DEFAULT_PRODUCER = "default"


def publish(
    df: DataFrame,
    topic: str | Topic,
    *,
    config: Config,
    cluster: str,
    producer: str = DEFAULT_PRODUCER,
    order_by: str | Sequence[str] = (),
    partition_by: str | None = None,
    publish_id: str | None = None,
    trigger: str = AVAILABLE_NOW,
    take_over: bool = False,
) -> Published | PublishStream:
    """Publish a DataFrame to a topic of `cluster`, each row exactly once however often this is repeated.

    Columns of `df`: `key` STRING, `payload` BINARY, `properties` MAP<STRING, STRING>, `replicate_to` ARRAY<STRING>,
    `event_time` TIMESTAMP, all optional; any others make the topic typed when it is created and must be its columns later.

    A batch DataFrame needs an identity, because a repeated call must know what it has published: `order_by`, columns
    that order the rows without ties (then only rows after the last published one are added; `partition_by` gives one
    ledger per value, numbered in parallel), or `publish_id`, a name under which all rows are published in one commit,
    once. A stream has its checkpoint, kept under the producer's name. A row that cannot be published refuses the whole of a batch
    DataFrame; of a stream it goes to a file below `<checkpoints>/rejects/<topic>/<producer>`, and the others are published.

    Returns what was published, or for a streaming `df` a running PublishStream.
    Raises UsageError (columns, rows, no identity; nothing was published), SourceChangedError, AlreadyOwnedError, FencedError.
    """
    spark = df.sparkSession
    require_delta(spark)
    topic = _of_users(topic)
    order = (order_by,) if isinstance(order_by, str) else tuple(order_by)
    publisher = Publisher(connect(spark, config.cluster(cluster)), config, topic, producer)
    if df.isStreaming:
        if order or partition_by or publish_id:
            raise UsageError("a stream is identified by its checkpoint: leave order_by, partition_by and publish_id out.")
        return PublishStream(publisher, lambda _: df, trigger, take_over=take_over)
    identity = _batch_identity(df, order, partition_by, publish_id)
    publisher.open(df, {*order, *([partition_by] if partition_by else [])}, take_over=take_over)
    try:
        result = publisher.publish(df, identity)
    except BaseException:
        publisher.close(clean=False)
        raise
    publisher.close()
    return result


def _of_users(topic: str | Topic) -> Topic:
    topic = topic if isinstance(topic, Topic) else Topic.parse(topic)
    if topic.is_system:
        raise UsageError(f"{topic}: names that start with __ are for what delta-geo itself writes. Choose another name.")
    return topic


def _batch_identity(df: DataFrame, order: tuple[str, ...], partition_by: str | None, publish_id: str | None) -> Identity:
    if publish_id and order:
        raise UsageError("give order_by or publish_id, not both: each alone says what is already published.")
    if publish_id:
        return by_id(publish_id)
    if order:
        return by_order(df, order, partition_by)
    raise UsageError(
        "these rows have no identity: if the call is repeated after a crash, nobody can tell which of them were published. "
        "Give order_by=[columns that order them without ties], or publish_id='a name for exactly these rows', or a stream."
    )


def publish_json_lines(
    spark: SparkSession,
    path: str,
    topic: str | Topic,
    *,
    config: Config,
    cluster: str,
    producer: str = DEFAULT_PRODUCER,
    trigger: str = AVAILABLE_NOW,
    rejects: str | None = None,
    batch_bytes: int = jsonl.BATCH_BYTES,
    take_over: bool = False,
) -> PublishStream:
    """Publish a JSON lines file, or all of a directory (`.jsonl`, `.json`, `.ndjson`), each line exactly once.

    One ledger per file and `replicate_to`, entries in line order. Lines that cannot be published go to a file below
    `rejects` (default `<checkpoints>/rejects/<topic>/<producer>`) as `{"file", "line", "reason"}`; the rest is published.
    Errors as `publish`.
    """
    jsonl.open_path(path)
    require_delta(spark)
    spark.dataSource.register(jsonl.JsonLinesSource)
    topic = _of_users(topic)
    tables = connect(spark, config.cluster(cluster))
    publisher = Publisher(tables, config, topic, producer)
    span_bytes = max(jsonl.LEAST_SPAN_BYTES, -(-batch_bytes // spark.sparkContext.defaultParallelism))
    options = {"path": path, "batchBytes": str(batch_bytes), "spanBytes": str(span_bytes)}
    frame = spark.readStream.format(jsonl.FORMAT).options(**options).load()
    identity = by_columns("_geo_file", "_geo_line")
    return PublishStream(
        publisher, lambda _: frame, trigger, identity=identity, rejects=rejects, reject_keys=("file", "line"), take_over=take_over
    )


def publish_kafka(
    spark: SparkSession,
    bootstrap_servers: str,
    kafka_topic: str,
    topic: str | Topic,
    *,
    config: Config,
    cluster: str,
    producer: str = DEFAULT_PRODUCER,
    trigger: str = AVAILABLE_NOW,
    begin: str = "earliest",
    batch_rows: int = kafka.BATCH_ROWS,
    accept_lost: bool = False,
    rejects: str | None = None,
    take_over: bool = False,
) -> PublishStream:
    """Publish a Kafka topic, each record exactly once, one ledger per Kafka partition, in its order.

    A record's key, value, headers, timestamp and coordinates become `key`, `payload`, `properties` (its headers, and
    `kafka.topic`, `kafka.partition`, `kafka.offset`) and `event_time`. `begin` (earliest or latest) counts where nothing was
    published before. `config.kafka` says how the brokers are reached. `accept_lost` goes on behind offsets that are gone.

    The Kafka topic's id is kept with what is published of it. Errors as `publish`, and SourceChangedError if offsets are gone or
    the Kafka topic is another one than before (made anew, or of another Kafka cluster), RetryableError if the brokers stay away.
    """
    require_delta(spark)
    if find_spec("crc32c") is None:
        log.warning("Kafka records are checked in Python, which reads 7 MB/s a core instead of 30. %s.", kafka.NATIVE_PARTS)
    spark.dataSource.register(kafka.KafkaSource)
    topic = _of_users(topic)
    tables = connect(spark, config.cluster(cluster))
    configured = config.kafka.get(bootstrap_servers, {})
    revealed = {name: value.reveal() if isinstance(value, Secret) else value for name, value in configured.items()}
    settings = {"bootstrap_servers": bootstrap_servers, **revealed}
    topic_id = kafka.topic_id(settings, kafka_topic)

    def frame(sources: Mapping[str, SourceEnd]) -> DataFrame:
        ends = {name: json.loads(end.offset) for name, end in sources.items()}
        kafka.refuse_other_topic(kafka_topic, topic_id, {name: end[1] for name, end in ends.items() if len(end) > 1})
        options = {
            "topic": kafka_topic,
            "topicId": topic_id,
            # Spark keeps values whose name says password out of its UI and logs (spark.redaction.regex).
            "settings.password": json.dumps(settings),
            "begin": begin,
            "published": json.dumps(kafka.next_offsets(kafka_topic, {name: int(end[0]) for name, end in ends.items()})),
            "batchRows": str(batch_rows),
            "acceptLost": str(accept_lost).lower(),
        }
        return spark.readStream.format(kafka.FORMAT).options(**options).load()

    identity = by_columns(kafka.SOURCE, kafka.OFFSET, mark=topic_id)
    publisher = Publisher(tables, config, topic, producer)
    return PublishStream(
        publisher, frame, trigger, identity=identity, rejects=rejects, reject_keys=("partition", "offset"), take_over=take_over
    )


class PublishStream:
    """A stream that publishes, started by its construction. Stop it with `stop`, or wait with `await_termination`.

    `frame` makes the streaming DataFrame, told how far each source partition is published.
    """

    def __init__(
        self,
        publisher: Publisher,
        frame: Callable[[Mapping[str, SourceEnd]], DataFrame],
        trigger: str,
        *,
        identity: Identity | None = None,
        rejects: str | None = None,
        reject_keys: tuple[str, str] = ("stream", "batch"),
        take_over: bool = False,
    ) -> None:
        options = parse_trigger(trigger)
        self._publisher, self._identity, self._reject_keys = publisher, identity, reject_keys
        self._rejects = rejects or publisher.tables.checkpoint("rejects", publisher.topic.path, publisher.producer)
        self.rejects_file: str | None = None
        publisher.open(frame({}), take_over=take_over)
        self.resumed_from = publisher.sources
        """How far each source partition was published when this stream started."""
        try:
            self._checkpoint = publisher.tables.checkpoint("publish", publisher.topic.path, publisher.producer)
            rows = frame(self.resumed_from)
            self._check_checkpoint(rows.sparkSession)
            name = f"geo publish {publisher.topic} in {publisher.tables.cluster.name} by {publisher.producer}"
            self._name = name
            self.running = BatchQuery(rows, name, self._on_batch, checkpoint=self._checkpoint, trigger=options)
            """The query and what became of it."""
        except BaseException:
            publisher.close(clean=False)
            raise

    def __str__(self) -> str:
        return self._name

    @property
    def query(self) -> StreamingQuery:
        """Spark's own handle."""
        return self.running.query

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
        """Give the producer back, once the query has ended. Unless that is `clean`, the next start finds out what became of the last
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

    def _on_batch(self, rows: DataFrame, batch_id: int) -> None:
        if self._identity is None and self._publisher.ledgers.checkpoint_id is None:
            self._publisher.ledgers.checkpoint_id = checkpoint_id(rows.sparkSession, self._checkpoint)
        identity = self._identity or by_batch(batch_id)
        self._publisher.publish(rows, identity, lambda bad: self._write_rejects(bad, batch_id))

    def _write_rejects(self, bad: list[Rejected], batch_id: int) -> None:
        """A file per batch, so that a replay writes the same file again and no reject is told twice."""
        source, offset = self._reject_keys
        lines = [
            json.dumps(
                {source: row.source, offset: int(row.offset[0]), **self._told_apart(row), "reason": row.reason},
                ensure_ascii=False,
            )
            for row in sorted(bad, key=lambda row: (row.source, int(row.offset[0]), row.key or ""))
        ]
        self.rejects_file = f"{self._rejects}/batch-{batch_id:06d}.jsonl"
        self._publisher.tables.files.replace(self.rejects_file, lines)
        log.warning("%s: %d rows were rejected, see %s", self._publisher.topic, len(bad), self.rejects_file)

    def _told_apart(self, row: Rejected) -> dict[str, str | None]:
        """What tells the rows of one batch apart where their source does not number them: the beginning of the key."""
        return {"key": row.key and row.key[:200]} if self._identity is None else {}

    def _check_checkpoint(self, spark: SparkSession) -> None:
        """A stream identified by batch numbers must have the checkpoint they were counted in, and not an older copy of it:
        a batch planned anew under an old number would hold other rows than those published under it."""
        ends = self._publisher.sources
        if self._identity is not None or not ends:
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
