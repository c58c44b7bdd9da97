"""Verbs about a topic or subscription that is nowhere, in two regions on an S3 API. Spark is never started."""

from __future__ import annotations

from pathlib import Path

import pytest

from geo.cli.main import main
from geo.names import Topic
from tests.far import TOPIC, Far
from tests.object_store import ObjectStore as S3

pytestmark = pytest.mark.slow

PARTS = Topic.parse("persistent://shop/web/views")


@pytest.fixture(scope="module")
def far(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> Far:
    made = Far.made(s3, tmp_path_factory.mktemp("named"))
    for topic in (TOPIC, PARTS.with_partition(0), PARTS.with_partition(1)):
        made.publish(10, topic)
    made.replicate()
    return made


def typed(far: Far, command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code, and what is printed."""
    code = main([*command.split(), "--config", str(far.path), "--engine", "native"])
    out = capsys.readouterr()
    return code, out.out + out.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("topics --topic persistent://shop/web/click", "did you mean persistent://shop/web/clicks?"),
        ("topics --topic persistent://a/b/c", "no cluster has persistent://a/b/c. `geo topics` lists those that are there."),
        ("topics --topic shop", "topic 'shop' is not of the form"),
        ("peek --cluster us --topic persistent://shop/web/clack", "us has no topic persistent://shop/web/clack."),
        ("peek --cluster us --topic persistent://shop/web/views", "has 2 partitions in us. Name one of them, such as"),
        ("peek --cluster eu --topic persistent://shop/web/views-partition-0", "eu has no topic"),
        ("peek --cluster ue --topic persistent://shop/web/clicks", "cluster 'ue' is unknown; clusters: us, eu"),
        ("subscriptions --topic persistent://shop/web/clack", "did you mean persistent://shop/web/clicks?"),
        ("subscriptions status --subscription billing --topic persistent://shop/web/clicks", "no cluster knows a subscription billing"),
        ("subscriptions status --subscription billing --topic persistent://shop/web/clack", "no cluster has"),
    ],
)  # fmt: skip
def test_what_is_nowhere_is_refused_by_name(far: Far, command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = typed(far, command, capsys)
    assert (code, said in text) == (2, True), text


def test_a_partitioned_topic_stands_for_its_partitions(far: Far, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = typed(far, f"topics --topic {PARTS}", capsys)
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()[1:]] == [str(PARTS.with_partition(n)) for n in (0, 1)]


def test_nothing_is_said_to_be_nowhere_while_a_region_cannot_be_read(
    far: Far, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = tmp_path / "geo.yaml"
    away.write_text(far.path.read_text().replace("s3a://eu-", "s3a://not-there-"))
    code = main(["topics", "--topic", "persistent://a/b/c", "--config", str(away), "--engine", "native"])
    assert (code, "eu: cannot be read:" in capsys.readouterr().out) == (1, True)
