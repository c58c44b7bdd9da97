"""A real broker: killed in the middle and begun again, told by SIGHUP to read its configuration, stopped by a SIGTERM
to all its processes."""

from __future__ import annotations

import signal

import pytest

from geo.coordination.owners import owned_now
from geo.crash import CrashPoint
from geo.names import Topic
from geo.replication.link_table import read_links
from geo.streams.life import State
from geo.testing import config_text
from tests.processes import GeoProcess, geo
from tests.world import TOPIC, World

pytestmark = [pytest.mark.spark, pytest.mark.crash]

ORDERS = Topic.parse("persistent://shop/web/orders")


def _configure(world: World, fetchers: int, *topics: Topic) -> None:
    """How many fetchers the link into us has, and which topics are published there; put in place at once."""
    text = config_text(("eu", "us"), [{"source": "eu", "target": "us", "num_fetchers": fetchers}, ("us", "eu")]) + "publish:\n"
    text += "".join(f'  - {{cluster: us, topic: "{topic}", jsonl: {topic.name}}}\n' for topic in topics)
    world.put(text)


def _broker(world: World) -> list[str]:
    return ["broker", "--config", str(world.path), "--cluster", "us"]


def _said(process: GeoProcess, text: str) -> bool:
    return text in process.log.read_text()


def test_a_broker_killed_in_the_middle_goes_on_once_and_follows_signals(world: World) -> None:
    """Killed behind an append of its publisher; then behind one of its link, while five topics are written and its fetchers are resized
    from two to five; then to three, with another publication, and a second broker by mistake."""
    topics = [TOPIC, *(Topic.parse(f"persistent://shop/web/t{number}") for number in range(4))]
    written = 0

    def write() -> None:
        nonlocal written
        for topic in topics:
            world.write("eu", written, written + 5, topic=topic)
        written += 5

    def brought() -> bool:
        published = {TOPIC: 90}
        return all(world.count("us", topic) == written + published.get(topic, 0) for topic in topics)

    write()
    world.lines(TOPIC.name, 0, 50)
    _configure(world, 2, TOPIC)
    with geo(world.folder, *_broker(world), crash=(CrashPoint.PUBLISH_AFTER_APPEND, "kill")) as process:
        assert process.wait() == -signal.SIGKILL
    world.lines(TOPIC.name, 50, 90)
    with geo(world.folder, *_broker(world), crash=(CrashPoint.LINK_AFTER_APPEND, "kill:12")) as process:
        process.until(brought)
        _configure(world, 5, TOPIC)
        process.signal_python(signal.SIGHUP)
        while process.poll() is None:  # until it dies behind an append
            write()
        assert process.wait() == -signal.SIGKILL
        assert _said(process, "configuration reloaded")
    with geo(world.folder, *_broker(world)) as process:
        process.until(lambda: _said(process, f"link topic eu->us {TOPIC}: RUNNING"))
        with geo(world.folder, *_broker(world)) as second:
            assert second.wait() == 3, second.log.read_text()
            assert _said(second, "broker of us: already run by")
        world.lines(ORDERS.name, 0, 10)
        _configure(world, 3, TOPIC, ORDERS)
        process.signal_python(signal.SIGHUP)
        process.until(lambda: _said(process, "configuration reloaded"))
        write()
        process.until(lambda: brought() and world.count("us", ORDERS) == 10)
        process.signal_session(signal.SIGTERM)
        assert process.wait() == 0, process.log.read_text()
    assert {row.state for row in read_links(world.tables("us")).values()} == {State.STOPPED}, process.log.read_text()
    assert owned_now(world.tables("us")) == []
    own = [row["key"] for (origin, _, _), row in world.messages("us").items() if origin == "us"]
    assert sorted(own) == sorted(f"k{number}" for number in range(90)), "each line once"
    world.reload()
    world.replicate("eu")
    world.assert_clean(*topics, ORDERS)
    report = world.verify_quick()
    assert report.clean, report.lines()
