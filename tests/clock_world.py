"""A world for processes whose hosts' clocks are off: its tables are made, so that the processes need no Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from geo.coordination.storage_clock import renew
from geo.log.topics import create_topic
from geo.names import Topic
from tests.members import Alone
from tests.world import World

WORKS_S = [sign * off for off in (1, 60, 240, 299) for sign in (-1, 1)]
REFUSED_S = [sign * off for off in (600, 2 * 86_400) for sign in (-1, 1)]

OWNER_TIMEOUT_S = 30
CONF = "placement: {broker_timeout: 10 seconds, bundles: 4}\n"


def topic_of(name: str) -> Topic:
    return Topic.parse(f"persistent://shop/web/{name}")


def clock_world(spark: SparkSession, folder: Path, *, with_brokers: bool = False) -> World:
    """us and eu, linked one way; a link has run, and with brokers one has shared eu."""
    place = f"owner_timeout: {OWNER_TIMEOUT_S} seconds"
    world = World(folder, links=[("us", "eu")], ttl="1 day", place=lambda name: f"root: {name}, {place}", spark=spark)
    ready(world, "first")
    world.replicate("eu")
    renew(world.tables("eu"))  # makes the table of signs of life, which a link that ends before its first one does not
    if with_brokers:
        world.configure(CONF)
        alone = Alone(world, [topic_of("first")], name="first", tables=world.tables("eu"))
        alone.until(lambda: True)
        alone.member.close()
    return world


def ready(world: World, name: str) -> Topic:
    """A topic with ten messages in us, and an empty log in eu."""
    topic = topic_of(name)
    world.write("us", 0, 10, topic=topic)
    create_topic(world.tables("eu"), topic)
    return topic
