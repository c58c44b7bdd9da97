"""A message on which the user's function raises: the others go on, it becomes a dead letter with the error, and a fault of
everything is nobody's."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

from geo.subscription.acks.message_set import MessageSet
from geo.subscription.consumer.dead_letters import ERROR, ORIGIN_MESSAGE_ID
from tests.processes import LIMIT_S, environment
from tests.subscription.consuming import Given, Running, consume, consuming, ids, known, letters
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

EVERYTHING = [*ids("eu", 0, 20), *ids("us", 0, 20)]


def raises_on(*keys: str) -> Given:
    """A function that raises if one of these keys is in its batch, and acknowledges all of any other."""

    def process(messages: DataFrame) -> DataFrame:
        if bad := sorted({row["key"] for row in messages.collect()} & set(keys)):
            raise ValueError(f"cannot do {bad[0]}")
        return messages

    return Given(process)


def traffic_until(world: World, consumer: Running, condition: Callable[[], bool]) -> None:
    """Good messages come from entry 20 on, one after the other, until the condition holds."""
    for entry in itertools.count(20):
        if condition():
            return
        world.write("eu", entry, entry + 1)
        consumer.until_given(*ids("eu", entry, entry + 1))


def test_an_outage_gives_up_no_message_that_comes_alone_and_a_bad_one_is_given_up_once_another_passes(world: World) -> None:
    away = True

    def process(messages: DataFrame) -> DataFrame:
        if away:
            raise ConnectionError("the database is away")
        if messages.where("key = 'k2'").count():
            raise ValueError("a bad one")
        return messages

    world.write("eu", 0, 1)
    given = Given(process)
    with consuming(world, "eu", given, redelivery_delay_s=0.2, max_redeliveries=0) as consumer:
        consumer.until(lambda: len(given.batches) >= 3)
        world.write("eu", 1, 2)
        consumer.until(lambda: len(given.counts.get(ids("eu", 1, 2)[0], [])) >= 3)
        assert consumer.subscription.state.in_vain() == MessageSet()
        away = False
        consumer.until(lambda: consumer.subscription.done.acknowledged == 2)
        world.write("eu", 2, 3)
        consumer.until(lambda: len(given.counts.get(ids("eu", 2, 3)[0], [])) >= 3)
        assert consumer.subscription.state.in_vain() == MessageSet(), "perhaps everything fails now"
        world.write("eu", 3, 4)
        consumer.until(lambda: consumer.subscription.done.dead_lettered == 1)
    assert [row["key"] for row in letters(world, "eu")] == ["k2"]
    assert known(world, "eu").acked == MessageSet.of(ids("eu", 0, 4))


def test_with_default_settings_what_failed_alone_comes_again_as_soon_as_another_message_passes(world: World) -> None:
    """It does not wait for a minute, and nothing is given up."""

    def process(messages: DataFrame) -> DataFrame:
        if len(given.batches) <= 3:
            raise ConnectionError("the database is away")
        return messages

    given = Given(process)
    world.write("eu", 0, 1)
    with consuming(world, "eu", given, max_redeliveries=0) as consumer:
        for entry in range(4):
            world.write("eu", entry, entry + 1) if entry else None
            consumer.until_given(*ids("eu", entry, entry + 1))
        consumer.until(lambda: consumer.subscription.done.acknowledged == 4)
    assert given.batches[3:] == [ids("eu", 3, 4), ids("eu", 0, 1), ids("eu", 1, 3)]
    assert letters(world, "eu") == []


def test_a_function_that_fails_on_everything_counts_for_no_message_and_is_tried_again(linked: World) -> None:
    def process(messages: DataFrame) -> DataFrame:
        if len(given.batches) <= 15:  # the batch, and its parts in thirteen calls; and the batch once more
            raise ConnectionError("the database is away")
        return messages

    given = Given(process)
    with consuming(linked, "eu", given, redelivery_delay_s=0.2, max_redeliveries=0) as consumer:
        consumer.until(lambda: consumer.subscription.done.acknowledged == 40)
    assert letters(linked, "eu") == []
    assert consumer.subscription.done.dead_lettered == 0
    assert not known(linked, "eu").in_vain()


def test_of_a_batch_in_parts_a_bad_first_part_is_found_and_an_outage_is_nobodys_fault(linked: World) -> None:
    """Each message comes alone, since no two have so few bytes together."""

    def process(messages: DataFrame) -> DataFrame:
        if len(given.batches) <= 13:
            raise ConnectionError("the database is away")
        if messages.where("key IN ('k0', 'k1')").count():
            raise ValueError("a bad one")
        return messages

    given = Given(process)
    with consuming(linked, "eu", given, redelivery_delay_s=0.2, max_redeliveries=0, max_batch_bytes=60) as consumer:
        consumer.until(lambda: consumer.subscription.done.acknowledged == 36)
        consumer.until(lambda: consumer.subscription.done.dead_lettered == 4)
    assert {row["key"] for row in letters(linked, "eu")} == {"k0", "k1"}
    assert known(linked, "eu").acked == MessageSet.of(EVERYTHING)


def test_in_a_run_that_ends_the_error_of_a_function_that_fails_on_everything_is_raised_as_it_is(linked: World) -> None:
    mine = ConnectionError("the database is away")

    def process(messages: DataFrame) -> DataFrame:
        if len(given.batches) > 1:
            raise mine
        return messages

    given = Given(process)
    with pytest.raises(ConnectionError) as raised:
        consume(linked, "eu", given, max_redeliveries=3, batch_rows=10)
    assert raised.value is mine
    assert known(linked, "eu").acked == MessageSet.of(given.batches[0]), "what was done before is published"
    assert len(consume(linked, "eu").ids) == 30, "nothing else was acknowledged or given up"


def test_in_a_run_that_ends_a_message_that_comes_alone_counts_once_another_has_passed(linked: World) -> None:
    """If none passes the error is raised: nobody knows whose fault it is."""
    consume(linked, "eu", "key <> 'k3' OR origin = 'us'")  # once in vain
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot do k3"):
            consume(linked, "eu", raises_on("k3"), max_redeliveries=1)
    linked.write("eu", 20, 21)
    assert consume(linked, "eu", raises_on("k3"), max_redeliveries=1).consumed.acknowledged == 1
    assert consume(linked, "eu", raises_on("k3"), max_redeliveries=1).consumed.dead_lettered == 1


_DIES_ON_K1 = """
import os, signal, sys
from geo.config import load
from geo.session import session
from geo.subscription.consumer import Subscription

def process(messages):
    keys = sorted(row["key"] for row in messages.collect())
    print(*keys, flush=True)
    if "k1" in keys:
        os.kill(os.getpid(), signal.SIGKILL)
    return messages

consumer = Subscription(session("poison"), sys.argv[2], "billing", sys.argv[1], "eu", max_redeliveries=0)
consumer.run(process, trigger="available-now")
"""


@pytest.mark.crash
def test_a_message_on_which_the_process_dies_is_found_in_halves_and_becomes_a_dead_letter(world: World) -> None:
    world.write("eu", 0, 2)

    def run() -> tuple[int, list[str]]:
        command = [sys.executable, "-c", _DIES_ON_K1, str(world.path), str(TOPIC)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
        return done.returncode, done.stdout.splitlines()

    assert run() == (-signal.SIGKILL, ["k0 k1"])
    assert run() == (-signal.SIGKILL, ["k0", "k1"])
    given = consume(world, "eu", max_redeliveries=0)
    assert "k1" not in given.keys, "it waits for its redelivery"
    given = consume(world, "eu", max_redeliveries=0)
    assert given.ids == []
    assert given.consumed.dead_lettered == 1
    (letter,) = letters(world, "eu")
    assert letter["key"] == "k1"
    assert known(world, "eu").acked == MessageSet.of(ids("eu", 0, 2))


def test_bad_messages_of_a_batch_become_dead_letters_with_their_errors_and_hold_up_nobody(linked: World) -> None:
    given = raises_on("k3", "k11")  # of each region both
    with consuming(linked, "eu", given, redelivery_delay_s=0.2, max_redeliveries=1) as consumer:
        consumer.until(lambda: consumer.subscription.done.acknowledged >= 36)
        traffic_until(linked, consumer, lambda: consumer.subscription.done.dead_lettered == 4)
    told = {one["properties"][ORIGIN_MESSAGE_ID]: one["properties"][ERROR] for one in letters(linked, "eu")}
    assert told == {str(one): f"cannot do k{n}" for n in (3, 11) for region in ("eu", "us") for one in ids(region, n, n + 1)}
    assert len(letters(linked, "eu")) == 4
    state = known(linked, "eu")
    assert not MessageSet.of(EVERYTHING) - state.acked
    assert not state.in_vain()
