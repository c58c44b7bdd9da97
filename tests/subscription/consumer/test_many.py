"""One subscription of many topics: those of a glob or of a partitioned topic, also those that come later."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame

from geo.errors import UsageError
from geo.log.partitioned import create_partitions
from geo.names import Topic
from geo.streams import timetable
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import key_of
from geo.subscription.changes import create, delete
from geo.subscription.consumer import Subscription, Subscriptions
from geo.subscription.consumer import many as many_module
from tests.subscription.consuming import LIMIT_S, NAME, ids
from tests.waiting import InThread
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

OTHER, LATER = Topic.parse("persistent://shop/web/orders"), Topic.parse("persistent://shop/web/later")
GLOB = "persistent://shop/*/*"


class Shared:
    """A function of many topics: notes which messages came of which, and acknowledges them."""

    def __init__(self) -> None:
        self.came: dict[str, list[int]] = {}
        self._turn = threading.Lock()

    def __call__(self, messages: DataFrame) -> DataFrame:
        assert self._turn.acquire(blocking=False), "called twice at once"
        for row in messages.select("topic_name", "entry_id").collect():
            self.came.setdefault(row["topic_name"], []).append(row["entry_id"])
        self._turn.release()
        return messages


def _many(world: World, topics: str, **options: Any) -> Subscriptions:
    return Subscriptions(world.spark, topics, NAME, world.config, "eu", **options)


def test_all_topics_of_a_glob_are_consumed_and_one_that_fails_holds_up_no_other(world: World) -> None:
    world.write("eu", 0, 5)
    world.write("eu", 0, 7, topic=OTHER)
    for letters in (f"clicks-{NAME}-DLQ", "clicks-other-DLQ"):
        world.write("eu", 0, 3, topic=Topic.parse(f"persistent://shop/web/{letters}"))
    world.write("eu", 0, 2, topic=Topic.parse("persistent://garden/web/clicks"))
    world.write("eu", 0, 4, topic=LATER)
    world.spark.sql(f"ALTER TABLE {world.log('eu', LATER).sql} SET TBLPROPERTIES ('geo.schema.version' = '99')")
    many, given = _many(world, GLOB), Shared()
    done = many.run(given, trigger="available-now")
    assert given.came == {str(TOPIC): [0, 1, 2, 3, 4], str(OTHER): [0, 1, 2, 3, 4, 5, 6]}
    assert (done.delivered, done.acknowledged) == (12, 12)
    assert list(many.unfinished) == [str(LATER)]
    assert many.run(given, trigger="available-now").delivered == 0


def test_a_topic_that_comes_later_is_consumed_from_its_earliest_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "DISCOVERY_S", 0.2)
    world.write("eu", 0, 5)
    many, given = _many(world, GLOB, start="latest"), Shared()
    with InThread(partial(many.run, given, for_s=LIMIT_S), many.stop) as running:
        running.until(lambda: _knows(world, TOPIC))
        world.write("eu", 5, 6)
        world.write("eu", 0, 3, topic=LATER)
        running.until(lambda: given.came == {str(TOPIC): [5], str(LATER): [0, 1, 2]})
    known = read_known(world.tables("eu"), TOPIC).states
    assert known[key_of(LATER, NAME)].acked == MessageSet.of(ids("eu", 0, 3))


def test_all_partitions_of_a_topic_are_consumed_and_one_topic_is_no_business_of_many(world: World) -> None:
    create_partitions(world.tables("eu"), TOPIC, 2)
    parts = [Topic.parse(f"{TOPIC}-partition-{number}") for number in (0, 1)]
    for number, part in enumerate(parts):
        world.write("eu", 0, 3 + number, topic=part)
    given = Shared()
    _many(world, str(TOPIC)).run(given, trigger="available-now")
    assert given.came == {str(parts[0]): [0, 1, 2], str(parts[1]): [0, 1, 2, 3]}
    with pytest.raises(UsageError, match="neither a glob nor a partitioned topic"):
        _many(world, str(parts[0]))
    for option in ({"batch_rows": 0}, {"standby": True}, {"key_range": (2, 2)}):
        with pytest.raises(UsageError):
            _many(world, GLOB, **option)


def test_a_topic_that_waits_for_a_person_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "DISCOVERY_S", 0.2)
    monkeypatch.setattr(many_module, "FAILED_AGAIN_S", 0.2)
    world.write("eu", 0, 5)
    create(world.spark, world.config, "eu", TOPIC, NAME, "earliest")
    delete(world.spark, world.config, "eu", TOPIC, NAME)
    many, given = _many(world, GLOB), Shared()
    with InThread(partial(many.run, given, for_s=LIMIT_S), many.stop) as running:
        create(world.spark, world.config, "eu", TOPIC, NAME, "earliest")
        running.until(lambda: given.came == {str(TOPIC): [0, 1, 2, 3, 4]})


class Turn:
    """A lock that tells when somebody waits for it."""

    def __init__(self) -> None:
        self._lock, self.is_waited_for = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.is_waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_who_waits_for_its_turn_has_nothing_in_hand(world: World) -> None:
    """What another topic's message does to the process is not its messages' fault."""
    world.write("eu", 0, 5)
    world.write("eu", 0, 7, topic=OTHER)
    turn, noted, has_it = Turn(), list[list[str]](), threading.Event()
    tables = world.tables("eu")
    notes = {topic: tables.checkpoint("consume", topic.path, NAME, "attempt") for topic in (TOPIC, OTHER)}

    def first(messages: DataFrame) -> DataFrame:
        has_it.set()
        assert turn.is_waited_for.wait(LIMIT_S)
        noted.append(tables.files.lines(notes[TOPIC]))
        noted.append(tables.files.lines(notes[OTHER]))
        return messages

    one, other = (
        Subscription(world.spark, topic, NAME, world.config, "eu", max_redeliveries=1, turn=turn) for topic in (TOPIC, OTHER)
    )
    ended = one.start(first, trigger="available-now")
    assert has_it.wait(LIMIT_S), "else the other one might come first"
    other.run(lambda messages: messages, trigger="available-now")
    assert ended.result(LIMIT_S).acknowledged == 5
    assert [len(lines) for lines in noted] == [2, 0]


def test_an_error_of_the_function_ends_the_run_as_it_is(world: World) -> None:
    world.write("eu", 0, 5)

    def fails(messages: DataFrame) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        _many(world, GLOB).run(fails)


def _knows(world: World, topic: Topic) -> bool:
    log = world.log("eu", topic.acks)
    return log.exists() and key_of(topic, NAME) in read_known(world.tables("eu"), topic).states
