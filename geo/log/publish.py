"""Publishing as users call it: a DataFrame, a stream, JSON lines or a Kafka topic. Decides identity; no ids."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from geo.config import read
from geo.config.choices import SchemaChange, Start, check_schema_change
from geo.config.model import Config
from geo.config.publication import Publication
from geo.delta.ddl import find_checked
from geo.errors import NotReplicatedError, UsageError
from geo.journal.cluster import connect
from geo.log.admission import refuse_internal
from geo.log.ledgers import SourceEnd
from geo.log.other_producer import other_producer
from geo.log.publish_stream import FrameStream, SourceStream
from geo.log.publisher import Published, Publisher
from geo.log.replicas import WAIT_S, Ledgers, Replicas, WaitFor
from geo.log.source_identity import RowIdentity, by_id, by_order
from geo.log.sources import jsonl, kafka, kafka_rows, table
from geo.log.sources.files import open_path, whole_path
from geo.log.sources.json_columns import OwnColumns
from geo.log.sources.kafka_access import settings_of
from geo.log.sources.kafka_arrived import KafkaMessages
from geo.log.sources.kafka_topic import KafkaTopic
from geo.log.sources.own_table import OwnTable
from geo.log.sources.source import Source
from geo.log.sources.table_place import open_table
from geo.log.sources.table_rows import NO_COLUMNS, ROW, TABLE
from geo.log.topic_log import user_columns
from geo.names import DEFAULT_PRODUCER, Topic, check_user_producer
from geo.schemas import TOPIC_LOG
from geo.session import require_delta
from geo.streams.trigger import AVAILABLE_NOW

log = logging.getLogger(__name__)

_IN_JSON = (
    *(BinaryType, BooleanType, DateType, DecimalType, DoubleType, FloatType),
    *(IntegralType, StringType, TimestampNTZType, TimestampType),
)
"""Types of which JSON has values (geo.log.sources.json_columns), besides those that are made of them."""


def publish(
    df: DataFrame,
    topic: str | Topic,
    config: Config | str | Path,
    cluster: str,
    *,
    producer: str = DEFAULT_PRODUCER,
    order_by: str | Sequence[str] = (),
    partition_by: str | None = None,
    publish_id: str | None = None,
    trigger: str = AVAILABLE_NOW,
    take_over: bool = False,
    schema: SchemaChange = "fixed",
    wait_for: WaitFor | None = None,
    wait_s: float = WAIT_S,
) -> Published | FrameStream:
    """Publish a DataFrame to a topic of `cluster`, each row exactly once however often this is repeated.

    Columns of `df`: `key` STRING, `payload` BINARY, `properties` MAP<STRING, STRING>, `replicate_to` ARRAY<STRING>, `event_time` TIMESTAMP, all
    optional. Any others make the topic typed when it is created and must be its columns later. With `schema` "grow" a typed topic gets those that
    it lacks, in all its partitions, and wider types where Delta widens them. Links replicate both to the other clusters. Case does not tell names
    apart.

    A batch DataFrame needs an identity, because a repeated call must know what it has published. It is `order_by`, columns that order the rows
    without ties (then only rows after the last published one are added. `partition_by` gives one ledger per value, one of them for NULL, numbered
    in parallel). Or it is `publish_id`, a name under which all rows are published in one commit, once. A stream has its checkpoint, kept under the
    producer's name. A row that cannot be published refuses the whole of a batch DataFrame. Of a stream it goes to a file below
    `<checkpoints>/rejects/<topic>/<producer>`, and the others are published.

    With `wait_for` it returns once other regions hold what this call has published, and what was published before into the same ledgers. They are
    given by name, as a number, or as "in-sync". In sync are those that lacked, as it began, at most what this producer published in the last thirty
    seconds. It waits for a batch DataFrame only, `wait_s` seconds at most.

    Returns what was published, or for a streaming `df` a running FrameStream. Raises UsageError (columns, rows, no identity; nothing was
    published), SourceChangedError, AlreadyOwnedError, FencedError; NotReplicatedError, which has what was published, once it has waited for too
    long.
    """
    spark = df.sparkSession
    require_delta(spark)
    config, topic = read(config), _of_users(topic, producer)
    check_schema_change(schema)
    refuse_internal(df.columns, topic)
    order = (order_by,) if isinstance(order_by, str) else tuple(order_by)
    publisher = Publisher(connect(spark, config.cluster(cluster)), config, topic, producer)
    if df.isStreaming:
        if order or partition_by or publish_id:
            raise UsageError("a stream is identified by its checkpoint: leave order_by, partition_by and publish_id out.")
        if wait_for is not None:
            raise UsageError("wait_for is for a batch: a stream has no end. Ask `geo links status` how far its regions are.")
        return FrameStream(publisher, df, trigger, take_over=take_over, grow=schema == "grow")
    identity = _batch_identity(df, order, partition_by, publish_id)
    given = {*order, *([partition_by] if partition_by else [])}
    publisher.open(df.schema, given, take_over=take_over, grow=schema == "grow")
    try:
        replicas = (
            None if wait_for is None else Replicas.of(wait_for, publisher.tables, config, topic, producer, publisher.writer.ends)
        )
        result = publisher.publish(df, identity.continuing(publisher.writer.sources))
    except BaseException:
        publisher.close(clean=False)
        raise
    publisher.close()
    return result if replicas is None else waited(result, replicas, publisher.writer.ends, wait_s)


def waited(
    published: Published, replicas: Replicas, ledgers: Ledgers, wait_s: float, stop: threading.Event | None = None
) -> Published:
    """Return what was published, once the regions hold it. Raises NotReplicatedError, which has it."""
    try:
        return replace(published, held_after=replicas.wait(ledgers, wait_s, stop))
    except NotReplicatedError as error:
        error.published = published
        raise


def _of_users(topic: str | Topic, producer: str) -> Topic:
    """The topic. Raises UsageError where delta-geo alone publishes to it, or under the producer's name."""
    topic = Topic.of(topic)
    check_user_producer(producer)
    if topic.is_system:
        raise UsageError(f"{topic}: names that start with __ are for what delta-geo itself writes. Choose another name.")
    return topic


def _batch_identity(df: DataFrame, order: tuple[str, ...], partition_by: str | None, publish_id: str | None) -> RowIdentity:
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


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Options by which files, Delta tables or Kafka topics are published. They say when (`trigger`), and how much at a time: `batch_bytes` of files
    (of a Delta table 64 MiB at most) or `batch_rows` of Kafka. `take_over` takes the producer from an owner that lives. Rows that cannot be
    published go to files below `rejects` (default `<checkpoints>/rejects/<topic>/<producer>`). With `continue_from`, a cluster, it goes on where
    the producer of that name was there, if this cluster's record does not say more (geo.log.failing_over). `accept_lost` goes on behind offsets
    of Kafka's, or commits of a Delta table, that are gone. `accept_unreadable` does behind offsets that are there and cannot be read. `again`: also
    if the topic was deleted; without, that is an UnsafeError. `stopped`: a Kafka broker that is away is waited for only until then."""

    trigger: str = AVAILABLE_NOW
    batch_bytes: int = jsonl.BATCH_BYTES
    batch_rows: int = kafka.BATCH_ROWS
    rejects: str | None = None
    take_over: bool = False
    continue_from: str | None = None
    accept_lost: bool = False
    accept_unreadable: tuple[kafka.OffsetSpan, ...] = ()
    again: bool = True
    stopped: Callable[[], bool] = lambda: False

    def check_for(self, what: Publication) -> None:
        """Raises UsageError of what nobody would read of them when this is published."""
        if what.kafka is None and self.accept_unreadable:
            raise UsageError(f"{what.name}: accept_unreadable belongs to kafka")
        if what.jsonl is not None and self.accept_lost:
            raise UsageError(f"{what.name}: accept_lost belongs to kafka and delta")


def publish_source(
    spark: SparkSession, config: Config, what: Publication, *, options: PublishOptions = PublishOptions()
) -> SourceStream:
    """Begin to publish what a publication says, as `publish_kafka`, `publish_json_lines` or `publish_table`.

    Returns a SourceStream, which runs on a daemon thread and so ends with its process: `await_termination()` waits for its end, and raises what ended it.
    What is wrong with the arguments is raised at once.
    """
    options.check_for(what)
    if what.delta is not None:
        return _publish_rows(spark, config, what, options)
    return (_publish_lines if what.jsonl is not None else _publish_records)(spark, config, what, options)


def publish_json_lines(
    spark: SparkSession,
    path: str | Path,
    topic: str | Topic,
    config: Config | str | Path,
    cluster: str,
    *,
    producer: str = DEFAULT_PRODUCER,
    options: PublishOptions = PublishOptions(),
) -> SourceStream:
    """Publish a JSON lines file, or all of a directory (`.jsonl`, `.json`, `.ndjson`, and these as `.gz` or `.zst`), each line exactly once.

    One ledger per file and `replicate_to`, entries in line order. A file is known by its whole path, however `path` is written, also once it is
    renamed or compressed. A topic that has columns of its own takes them from lines by their names. Lines that
    cannot be published are rejected as `{"file", "line", "reason"}`; the rest is published. Messages do not say file and line, so the
    cluster `options.continue_from` must be there the first time.

    Returns as `publish_source`. Errors as `publish`; with `continue_from` also UsageError if nothing says where to go on.
    """
    return publish_source(spark, read(config), Publication(cluster, Topic.of(topic), producer, jsonl=str(path)), options=options)


def publish_kafka(
    spark: SparkSession,
    bootstrap_servers: str,
    kafka_topic: str,
    topic: str | Topic,
    config: Config | str | Path,
    cluster: str,
    *,
    producer: str = DEFAULT_PRODUCER,
    start: Start = "earliest",
    options: PublishOptions = PublishOptions(),
) -> SourceStream:
    """Publish a Kafka topic, each record exactly once, one ledger per Kafka partition, in its order.

    A record's key, value, headers, timestamp and coordinates become `key`, `payload`, `properties` and `event_time`. Properties are its headers,
    and `kafka.topic`, `kafka.partition`, `kafka.offset`. Outside the years 1 to 9999 the time is NULL, and `kafka.timestamp` has it. `start`
    (earliest or latest) counts where nothing was published before. `config.kafka` says how the brokers are reached. With `options.continue_from` it
    goes on at the offsets where the producer was there, by its records or else by what arrived of it here.

    The Kafka topic's id is kept with what is published of it. Returns as `publish_source`. Errors as `publish`, and SourceChangedError if offsets
    are gone or the Kafka topic is another one than before (made again, or of another Kafka cluster). Raises RetryableError if the brokers stay
    away. With `continue_from` AlreadyOwnedError if that producer lives, UsageError if nothing says where to go on.
    """
    what = Publication(cluster, Topic.of(topic), producer, kafka=bootstrap_servers, kafka_topic=kafka_topic, kafka_start=start)
    return publish_source(spark, read(config), what, options=options)


def publish_table(
    spark: SparkSession,
    path: str | Path,
    topic: str | Topic,
    config: Config | str | Path,
    cluster: str,
    *,
    producer: str = DEFAULT_PRODUCER,
    start: Start = "earliest",
    key: str | None = None,
    order_by: str | Sequence[str] = (),
    only_inserts: bool = False,
    schema: SchemaChange = "grow",
    options: PublishOptions = PublishOptions(),
) -> SourceStream:
    """Publish a Delta table, given by its path or a catalog's name. The rows that are there at the first start (`start` earliest) come first, then
    what each of its commits inserts. Each row comes exactly once, in one ledger per `replicate_to`, in the order of the commits.

    Its columns are those of the topic, which gets columns that come later, and wider types, unless `schema` is fixed: then they stop it. `key`,
    `payload`, `properties`, `replicate_to` and `event_time` are the message's own. It is read without Spark where it is on a local disk or on S3,
    as the cluster's storage is reached. OPTIMIZE, VACUUM and properties are passed. Deletes, updates and merges stop it, with `only_inserts` they
    are passed over, and what is inserted by them is published if the change feed tells.

    Returns as `publish_source`. Errors as `publish`; SourceChangedError for a table that was changed, restored, made again, or cleaned up before it
    was read. UsageError for one that is not read here.
    """
    order = (order_by,) if isinstance(order_by, str) else tuple(order_by)
    what = Publication(
        cluster, Topic.of(topic), producer, delta=str(path), delta_start=start, key=key, order_by=order, only_inserts=only_inserts, schema=schema,
    )  # fmt: skip
    return publish_source(spark, read(config), what, options=options)


def _publish_lines(spark: SparkSession, config: Config, what: Publication, options: PublishOptions) -> SourceStream:
    assert what.jsonl is not None
    path = whole_path(what.jsonl)
    open_path(path)
    require_delta(spark)
    publisher = _publisher_of(spark, config, what, options)
    span_bytes = max(jsonl.LEAST_SPAN_BYTES, -(-options.batch_bytes // spark.sparkContext.defaultParallelism))
    seen = find_checked(publisher.tables.log(what.topic), TOPIC_LOG)
    own = _own_columns([] if seen is None else user_columns(seen.columns))

    def reader(_: Mapping[str, SourceEnd]) -> jsonl.JsonLinesReader:
        return jsonl.JsonLinesReader(path, options.batch_bytes, span_bytes, own)

    other = None
    if options.continue_from is not None:
        other = other_producer(publisher.tables, config, what.topic, what.producer, options.continue_from, reader({}))
    source = Source(jsonl.FILE, jsonl.LINE, jsonl.block_of(own), ("file", "line"), reader, own=frozenset(own.names))
    return SourceStream(publisher, source, options.trigger, rejects=options.rejects, take_over=options.take_over, other=other)


def _own_columns(fields: Sequence[StructField]) -> OwnColumns:
    """A typed topic's own columns as JSON lines give them."""
    given = [field for field in fields if _is_in_json(field.dataType)]
    return OwnColumns(to_arrow_schema(StructType(given), timezone="UTC"), tuple(f.name for f in fields if f not in given))


def _is_in_json(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_in_json(kind.elementType)
    if isinstance(kind, MapType):
        return _is_in_json(kind.keyType) and _is_in_json(kind.valueType)
    if isinstance(kind, StructType):
        return all(_is_in_json(field.dataType) for field in kind)
    return isinstance(kind, _IN_JSON)


def _publish_records(spark: SparkSession, config: Config, what: Publication, options: PublishOptions) -> SourceStream:
    assert what.kafka is not None, "a publication has one of them"
    assert what.kafka_topic is not None, "it belongs to kafka"
    kafka_topic = what.kafka_topic
    require_delta(spark)
    if find_spec("crc32c") is None:
        log.warning("Kafka records are checked in Python, which reads 7 MB/s a core instead of 30. %s.", kafka.NATIVE_PARTS)
    topic = KafkaTopic(settings_of(config, what.kafka), kafka_topic, options.stopped)

    def reader(ends: Mapping[str, SourceEnd]) -> kafka.KafkaReader:
        found = kafka.KafkaReader(
            topic, start=what.kafka_start, batch_rows=options.batch_rows,
            accept_lost=options.accept_lost, accept_unreadable=options.accept_unreadable,
        )  # fmt: skip
        places = {name: place for name, end in ends.items() if (place := found.place_of(name, end)) is not None}
        kafka.refuse_other_topic(kafka_topic, topic_id, places)
        return found

    with closing(topic):
        topic_id = topic.topic_id()
        publisher = _publisher_of(spark, config, what, options)
        other = None
        if options.continue_from is not None:
            asked = kafka.KafkaReader(topic)
            messages = KafkaMessages(asked, kafka_topic, topic_id)
            other = other_producer(publisher.tables, config, what.topic, what.producer, options.continue_from, asked, messages)
            kafka.refuse_other_topic(kafka_topic, topic_id, other.recorded)
    source = Source(
        kafka_rows.PARTITION, kafka_rows.RECORD_OFFSET, kafka_rows.BLOCK, ("partition", "offset"), reader, has_gaps=True
    )
    return SourceStream(publisher, source, options.trigger, rejects=options.rejects, take_over=options.take_over, other=other)


def _publish_rows(spark: SparkSession, config: Config, what: Publication, options: PublishOptions) -> SourceStream:
    assert what.delta is not None, "a publication has one of them"
    require_delta(spark)
    publisher = _publisher_of(spark, config, what, options)
    own = OwnTable(
        open_table(spark, what.delta, publisher.tables.cluster),
        key=what.key, order_by=what.order_by, accept_lost=options.accept_lost,
    )  # fmt: skip
    batch_bytes = min(options.batch_bytes, table.BATCH_BYTES)

    def reader(_: Mapping[str, SourceEnd]) -> table.TableReader:
        return table.TableReader(own, start=what.delta_start, batch_bytes=batch_bytes, only_inserts=what.only_inserts)

    other = None
    if options.continue_from is not None:
        other = other_producer(publisher.tables, config, what.topic, what.producer, options.continue_from, reader({}))
    now = own.columns_now()
    # Columns of a topic that is there are looked at when they are published.
    blocks = NO_COLUMNS if publisher.tables.log(what.topic).exists() else now
    source, grow = Source(TABLE, ROW, blocks, ("table", "row"), reader, has_gaps=True), what.schema == "grow"
    return SourceStream(
        publisher, source, options.trigger, rejects=options.rejects, take_over=options.take_over, other=other, grow=grow
    )


def _publisher_of(spark: SparkSession, config: Config, what: Publication, options: PublishOptions) -> Publisher:
    tables = connect(spark, config.cluster(what.cluster))
    return Publisher(tables, config, what.topic, what.producer, again=options.again)
