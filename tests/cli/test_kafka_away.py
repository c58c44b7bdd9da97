"""A Kafka broker that is away, as a person at the command line meets it: what is waited for, and one line of ours at the end. Without Spark."""

from __future__ import annotations

import json
import pickle
import time
from pathlib import Path

import pytest

from geo.cli.main import main
from geo.errors import RetryableError
from geo.log.sources import kafka_topic
from tests.kafka_broker import free_ports

TOPIC = "persistent://shop/web/orders"


def test_a_broker_that_is_away_is_told_in_our_words_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka_topic, "WAIT_S", 1.0)
    (path := tmp_path / "geo.yaml").write_text(json.dumps({"version": 1, "clusters": {"eu": {"root": str(tmp_path / "eu")}}}))
    named = ["--config", str(path), "--cluster", "eu", "--topic", TOPIC]
    assert main(["topics", "create", *named]) == 0
    capsys.readouterr()
    away = f"localhost:{free_ports(1)[0]}"
    of_kafka = ["--kafka", away, "--kafka-topic", "orders", "--kafka-group", "billing"]
    assert main(["subscriptions", "create", *named, "--subscription", "billing", *of_kafka]) == 1
    out, err = capsys.readouterr()
    waits, ends = err.splitlines()
    unreachable = f"Kafka at {away} cannot be reached: {away}: Connection refused."
    assert waits.endswith(f" warning {unreachable} Trying again")
    assert ends.startswith(f"geo: {unreachable} Nobody answered for ")
    assert out == ""


def test_a_wait_for_a_broker_ends_as_soon_as_it_is_stopped_and_a_task_gets_a_topic_that_nothing_stops() -> None:
    asked = iter((False, True))  # while it waits, and then it was stopped
    topic = kafka_topic.KafkaTopic({"bootstrap_servers": f"localhost:{free_ports(1)[0]}"}, "orders", lambda: next(asked, True))
    began = time.monotonic()
    with pytest.raises(RetryableError, match=r"cannot be reached.* It was waited for until it was stopped"):
        topic.topic_id()
    assert time.monotonic() - began < kafka_topic.WAIT_S / 10
    assert pickle.loads(pickle.dumps(topic)).name == "orders"  # noqa: S301  # ours
