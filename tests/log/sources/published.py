"""A Kafka topic published to its end."""

from __future__ import annotations

from typing import Any

from geo.log.publish import PublishOptions, publish_kafka
from geo.log.publish_stream import SourceStream
from geo.names import Topic
from tests.kafka_broker import Broker
from tests.world import TOPIC, World


def published(
    world: World,
    broker: Broker,
    kafka_topic: str,
    cluster: str = "eu",
    *,
    to: Topic = TOPIC,
    **options: Any,
) -> SourceStream:
    """`options`: of PublishOptions, and `begin` and `producer`."""
    more = {name: options.pop(name) for name in ("begin", "producer") if name in options}
    how = PublishOptions(**options)
    stream = publish_kafka(
        world.spark, broker.bootstrap, kafka_topic, to, config=world.config, cluster=cluster, options=how, **more
    )
    stream.await_termination()
    return stream
