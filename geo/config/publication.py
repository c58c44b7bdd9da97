"""A publication: what a broker publishes into a topic of its cluster. Pure: no Spark, clock or I/O."""

from __future__ import annotations

from dataclasses import dataclass

from geo.config.choices import SchemaChange, Start, check_schema_change
from geo.errors import UsageError
from geo.names import DEFAULT_PRODUCER, Topic, check_cluster, check_user_producer


@dataclass(frozen=True, slots=True)
class Publication:
    """Source that a broker publishes into a topic of its cluster. It is one of three.

    - JSON lines below the path `jsonl`.
    - The topic `kafka_topic` of the Kafka brokers `kafka`, from `kafka_start` where nothing was read yet.
    - The Delta table `delta`, a path or a catalog's name, from `delta_start`, with the text of its column `key` as the key. The rows of a commit come
      in the order of `order_by`. Changes and deletes are passed over where it is `only_inserts`. Columns and wider types that it gets the topic gets
      too, unless its `schema` is fixed.

    UsageError if it is none of them.
    """

    cluster: str
    topic: Topic
    producer: str = DEFAULT_PRODUCER
    jsonl: str | None = None
    kafka: str | None = None
    kafka_topic: str | None = None
    kafka_start: Start = "earliest"
    delta: str | None = None
    delta_start: Start = "earliest"
    key: str | None = None
    order_by: tuple[str, ...] = ()
    only_inserts: bool = False
    schema: SchemaChange = "grow"

    def __post_init__(self) -> None:
        check_cluster(self.cluster), check_user_producer(self.producer)
        if self.topic.is_system:
            raise UsageError(f"{self.topic} is a system topic, into which delta-geo alone publishes")
        if [self.jsonl, self.kafka, self.delta].count(None) != 2:
            raise UsageError(f"{self.name}: expected one of jsonl, kafka (with kafka_topic) and delta")
        if (self.kafka is None) != (self.kafka_topic is None):
            raise UsageError(f"{self.name}: kafka and kafka_topic belong together")
        if self.kafka is None and self.kafka_start != "earliest":
            raise UsageError(f"{self.name}: kafka_start belongs to kafka")
        check_schema_change(self.schema)
        of_delta = self.delta_start != "earliest" or self.key or self.order_by or self.only_inserts or self.schema != "grow"
        if self.delta is None and of_delta:
            raise UsageError(f"{self.name}: delta_start, key, order_by, only_inserts and schema belong to delta")

    @property
    def name(self) -> str:
        """Unique in a configuration: a producer of a topic goes on from one source only."""
        return f"{self.topic} in {self.cluster} by {self.producer}"
