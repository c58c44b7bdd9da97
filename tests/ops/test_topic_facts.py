"""What is told of topics on a disk and on a store, and what it takes where each look is a request: how fast their logs grow, and who reads versions of
them. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from geo.log.ledger_writer import LedgerWriter
from geo.now import now_us
from geo.ops.commit_rates import MOST_FAR, newest_commits, published_lately
from geo.subscription.versions import version_subscriptions
from tests.broken.place import TOPIC, Place, without_spark
from tests.object_store import ObjectStore as S3

pytestmark = pytest.mark.slow

AGO_S = 240
"""By how much a producer's clock is late here: less than a clock may be."""


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with without_spark():
        yield Place(tmp_path, request.getfixturevalue("s3") if request.param == "s3" else None)


def test_what_was_committed_in_the_last_minute_counts_on_every_screen_whatever_producers_say(place: Place) -> None:
    place.publish(0)
    tables = place.far.tables("us")
    writer = LedgerWriter(
        tables, place.far.config, TOPIC, "p", tables.log(TOPIC), clock=lambda: now_us() - AGO_S * 1_000_000, take_over=False
    )
    for end in (6, 12):
        place.far.append(writer, end)
    writer.close()
    place.replicate("eu")
    before = sum(place.s3.counts().values()) if place.s3 is not None else 0
    stats = {one["cluster"]: one for one in place.geo("topics", "stats", "--topic", str(TOPIC), "-o", "json").data}
    if place.s3 is not None:
        assert sum(place.s3.counts().values()) - before <= 60
    assert {name: one["rates"]["1m"]["published_per_second"] for name, one in stats.items()} == {"us": 0.2, "eu": 0.0}
    assert stats["eu"]["rates"]["1m"]["messages_per_second"] == 0.2
    shown = {one["cluster"]: one["published_per_second"] for one in place.geo("status", "-o", "json").data["clusters"]}
    assert shown["us"] == 0.2 if place.s3 is None else shown["us"] in (0.2, None), "on a store it may be unknown, and is never 0"


def test_consumers_of_versions_are_counted_with_the_versions_that_they_lack(place: Place) -> None:
    place.publish(5)
    tables = place.far.tables("us")
    newest = tables.log(TOPIC).latest_version()
    for name in ("reports", "new"):
        version_subscriptions.create(tables, TOPIC, name)
    version_subscriptions.finish(tables, TOPIC, "reports", newest)
    place.publish(9)
    lacks = tables.log(TOPIC).latest_version() - newest
    assert lacks > 0
    (stats,) = (one for one in place.geo("topics", "stats", "-o", "json").data if one["cluster"] == "us")
    assert stats["of_versions"] == {"new": newest + lacks + 1, "reports": lacks}
    listed = place.geo("subscriptions", "list", "-o", "json").data
    assert {one["subscription"]: one["backlog_versions"] for one in listed} == stats["of_versions"]
    shown = place.geo("status", "-o", "json").data["subscriptions"]
    assert (shown["count"], shown["of_versions"], shown["behind"]) == (2, 2, [])
    behind = {one["subscription"]: one["backlog_versions"] for one in shown["versions_behind"]}
    assert behind in (stats["of_versions"], {}) if place.s3 is not None else behind == stats["of_versions"], "unknown, or so many"


def test_of_a_log_on_a_store_some_commits_are_read_and_rates_are_of_a_shorter_time(s3: S3, tmp_path: Path) -> None:
    place = Place(tmp_path, s3)
    far = place.far
    writer = far.producer(TOPIC)
    for end in range(1, MOST_FAR + 10):
        far.append(writer, end)
    writer.close()
    log, before = far.log("us", TOPIC), sum(s3.counts().values())
    newest, now = log.latest_version(), now_us()
    commits, reaches_back = newest_commits(log, newest, 0)
    assert (len(commits), commits[-1].version, reaches_back) == (MOST_FAR, newest, False)
    rate = published_lately(log, newest, now)
    assert rate is not None
    assert rate == pytest.approx((MOST_FAR - 1) / ((now - commits[0].committed_us) / 1e6))
    assert sum(s3.counts().values()) - before <= 2 * MOST_FAR + 10
