"""What the names of runners say, made and read back."""

from __future__ import annotations

import pytest

from geo.names import Topic
from geo.tables.ownership import Runner, RunnerKind, RunnerName, filling_runners, origin_runners

TOPIC = Topic.parse("persistent://shop/web/order_events.v1:a=b-partition-3")

NAMES = {
    RunnerKind.ORIGIN: (f"origin us-1 of {TOPIC} into eu", f"origin/us-1/{TOPIC.path}", "origin.us-1"),
    RunnerKind.FILLING: (f"backfill of us-1 of {TOPIC} into eu", f"backfill/us-1/{TOPIC.path}", "backfill.us-1"),
    RunnerKind.PRODUCER: (f"producer us-1 of {TOPIC} in eu", f"publish/{TOPIC.path}/us-1", "producer.us-1"),
    RunnerKind.CONSUMER: (f"subscription us-1 of {TOPIC} in eu", f"consume/{TOPIC.path}/us-1", "subscription.us-1"),
}


@pytest.mark.parametrize("kind", RunnerKind)
def test_the_name_of_every_kind_of_runner_is_read_back(kind: RunnerKind) -> None:
    name = RunnerName(kind, "us-1", TOPIC, "eu")
    assert name.runner == Runner(*NAMES[kind])
    assert RunnerName.parse(name.runner.name) == name


def test_that_of_a_share_is_read_back_and_its_folder_is_its_own() -> None:
    name = RunnerName(RunnerKind.CONSUMER, "late", TOPIC, "eu", "keys 2 of 5")
    assert RunnerName.parse(name.runner.name) == name
    alone, other = (RunnerName(RunnerKind.CONSUMER, "late", TOPIC, "eu", share) for share in ("", "keys 3 of 5"))
    for part in ("name", "path", "property_key"):
        assert len({getattr(one.runner, part) for one in (name, alone, other)}) == 3


def test_of_several_origins_each_has_a_runner_in_one_order() -> None:
    origins = {"us", "ap", "eu"}
    for runners, kind in ((origin_runners, RunnerKind.ORIGIN), (filling_runners, RunnerKind.FILLING)):
        assert runners(origins, TOPIC, "af") == [RunnerName(kind, one, TOPIC, "af").runner for one in ("ap", "eu", "us")]


@pytest.mark.parametrize(
    "text",
    [
        "broker of eu",
        f"origin us of {TOPIC} in eu",
        f"producer p of {TOPIC} into eu",
        f"origin us of {TOPIC} into eu ",
        f"origin us and ap of {TOPIC} into eu",
        f"consumer late of {TOPIC} in eu",
        "producer p of shop/web/clicks in eu",
        "producer p of persistent://shop/web in eu",
    ],
)
def test_what_no_runner_is_called_is_no_name(text: str) -> None:
    assert RunnerName.parse(text) is None
