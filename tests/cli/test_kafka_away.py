"""A Kafka broker that is away, as a person at the command line meets it: what is waited for, and one line of ours at the end. Without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from geo.cli.main import main
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
