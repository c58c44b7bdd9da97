"""What the names of runners say, made and read back."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from geo.config.cluster import Cluster
from geo.coordination.runners import (
    Runner,
    RunnerKind,
    RunnerName,
    broker_runner,
    consumer_runner,
    filling_runners,
    origin_runners,
    producer_runner,
    subscription_prefix,
    version_sync_runner,
)
from geo.journal.cluster import connect_later
from geo.names import Topic

TOPIC = Topic.parse("persistent://shop/web/order_events.v1:a=b-partition-3")


def _no_spark() -> SparkSession:
    raise AssertionError("a name needs no Spark")


EU = connect_later(_no_spark, Cluster("eu", root="/eu"))

MADE: list[tuple[RunnerName, Runner, Runner]] = [
    (
        RunnerName(RunnerKind.ORIGIN, "us-1", TOPIC, "eu"),
        origin_runners({"us-1"}, TOPIC, "eu")[0],
        Runner(f"origin us-1 of {TOPIC} into eu", f"origin/us-1/{TOPIC.path}", "origin.us-1"),
    ),
    (
        RunnerName(RunnerKind.BACKFILL, "us-1", TOPIC, "eu"),
        filling_runners({"us-1"}, TOPIC, "eu")[0],
        Runner(f"backfill of us-1 of {TOPIC} into eu", f"backfill/us-1/{TOPIC.path}", "backfill.us-1"),
    ),
    (
        RunnerName(RunnerKind.PRODUCER, "p", TOPIC, "eu"),
        producer_runner(EU, TOPIC, "p"),
        Runner(f"producer p of {TOPIC} in eu", f"publish/{TOPIC.path}/p", "producer.p"),
    ),
    (
        RunnerName(RunnerKind.CONSUMER, "late", TOPIC, "eu"),
        consumer_runner(EU, TOPIC, "late"),
        Runner(f"subscription late of {TOPIC} in eu", f"consume/{TOPIC.path}/late", "subscription.late"),
    ),
    (
        RunnerName(RunnerKind.CONSUMER, "late", TOPIC, "eu", "keys 2 of 5"),
        consumer_runner(EU, TOPIC, "late", "keys 2 of 5"),
        Runner(
            f"subscription late of {TOPIC} in eu, keys 2 of 5",
            f"consume/{TOPIC.path}/late-keys-2-of-5",
            "subscription.late-keys-2-of-5",
        ),
    ),
]
"""What the name says, the runner as it is made, and all that there is of it: what is there already must be found again."""


@pytest.mark.parametrize(("says", "made", "there"), MADE, ids=lambda one: str(one) if isinstance(one, RunnerName) else "")
def test_the_name_of_every_runner_is_read_back(says: RunnerName, made: Runner, there: Runner) -> None:
    assert made == there
    assert RunnerName.parse(made.name) == says
    assert says.runner == made


def test_every_kind_of_runner_has_a_maker_and_shares_of_a_subscription_begin_with_its_name() -> None:
    assert {says.kind for says, _, _ in MADE} == set(RunnerKind)
    of_late = [made.name for says, made, _ in MADE if says.who == "late"]
    assert {name.partition(", ")[0] for name in of_late} == {subscription_prefix(EU, TOPIC, "late")}


def test_of_several_origins_each_has_a_runner_in_one_order() -> None:
    origins = {"us", "ap", "eu"}
    for runners, kind in ((origin_runners, RunnerKind.ORIGIN), (filling_runners, RunnerKind.BACKFILL)):
        assert runners(origins, TOPIC, "af") == [RunnerName(kind, one, TOPIC, "af").runner for one in ("ap", "eu", "us")]


@pytest.mark.parametrize(
    "text",
    [
        broker_runner(EU).name,
        version_sync_runner(EU).name,
        f"origin us of {TOPIC} in eu",
        f"producer p of {TOPIC} into eu",
        f"origin us of {TOPIC} into eu ",
        f"origin us and ap of {TOPIC} into eu",
        f"consumer late of {TOPIC} in eu",
        "producer p of shop/web/clicks in eu",
        "producer p of persistent://shop/web in eu",
    ],
)
def test_what_is_no_name_of_something_done_for_a_topic_is_not_read(text: str) -> None:
    assert RunnerName.parse(text) is None
