"""A real broker: killed in the middle and begun again, told by SIGHUP to read its configuration, stopped by SIGTERM."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from geo.crash import CrashPoint
from geo.names import Topic
from tests.processes import GeoProcess, geo
from tests.world import TOPIC, World

pytestmark = [pytest.mark.spark, pytest.mark.crash]

ORDERS = Topic.parse("persistent://shop/web/orders")


def _lines(folder: Path, first: int, end: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / ".new").write_text("".join(f'{{"key": "k{n}"}}\n' for n in range(first, end)))
    (folder / ".new").rename(folder / f"{first:04}.jsonl")


def _publishes(world: World, *topics: Topic) -> None:
    text = world.path.read_text().split("publish:")[0] + "publish:\n"
    text += "".join(f'  - {{cluster: us, topic: "{topic}", jsonl: {topic.name}}}\n' for topic in topics)
    new = world.path.with_suffix(".new")
    new.write_text(text)
    new.replace(world.path)


def _broker(world: World) -> list[str]:
    return ["broker", "--config", str(world.path), "--cluster", "us"]


def _said(process: GeoProcess, text: str) -> bool:
    return text in process.log.read_text()


def test_a_broker_killed_in_the_middle_goes_on_once_and_follows_signals(world: World) -> None:
    world.write("eu", 0, 20)
    _lines(world.folder / TOPIC.name, 0, 50)
    _publishes(world, TOPIC)
    with geo(world.folder, *_broker(world), crash=(CrashPoint.PUBLISH_AFTER_APPEND, "kill")) as process:
        assert process.wait() == -signal.SIGKILL
    _lines(world.folder / TOPIC.name, 50, 90)
    with geo(world.folder, *_broker(world)) as process:
        process.until(lambda: _said(process, f"link topic eu->us {TOPIC}: RUNNING"))
        process.until(lambda: world.log("us").read().count() == 20 + 90)
        with geo(world.folder, *_broker(world)) as second:
            assert second.wait() == 3, second.log.read_text()
            assert _said(second, "broker of us: already run by")
        _lines(world.folder / ORDERS.name, 0, 10)
        _publishes(world, TOPIC, ORDERS)
        process.signal_python(signal.SIGHUP)
        process.until(lambda: _said(process, "has changed and is taken"))
        process.until(lambda: world.log("us", ORDERS).exists() and world.log("us", ORDERS).read().count() == 10)
        process.signal_python(signal.SIGTERM)
        assert process.wait() == 0, process.log.read_text()
    assert world.log("us").read().select("key").distinct().count() == 20 + 90 - 20, "keys of eu are among those of us"
    world.reload()
    world.replicate("eu")
    assert world.verify().clean


def test_fetchers_are_resized_under_load_and_a_kill_between_loses_and_doubles_nothing(world: World) -> None:
    """Two, five, killed, three, while five topics are written; a second broker by mistake."""
    topics = [TOPIC, *(Topic.parse(f"persistent://shop/web/t{number}") for number in range(4))]
    written = 0

    def fetchers(count: int) -> None:
        world.rewrite(("eu", "us"), [{"source": "eu", "target": "us", "num_fetchers": count}])

    def write() -> None:
        nonlocal written
        for topic in topics:
            world.write("eu", written, written + 5, topic=topic)
        written += 5

    def brought() -> bool:
        logs = [world.log("us", topic) for topic in topics]
        return all(log.exists() and log.read().count() == written for log in logs)

    write()
    fetchers(2)
    with geo(world.folder, *_broker(world), crash=(CrashPoint.LINK_AFTER_APPEND, "kill:12")) as process:
        process.until(brought)
        fetchers(5)
        process.signal_python(signal.SIGHUP)
        while process.poll() is None:  # until it dies behind an append
            write()
        assert process.wait() == -signal.SIGKILL
        assert _said(process, "has changed and is taken")
    with geo(world.folder, *_broker(world)) as process:
        process.until(lambda: _said(process, f"link topic eu->us {TOPIC}: RUNNING"))
        with geo(world.folder, *_broker(world)) as second:
            assert second.wait() == 3, second.log.read_text()
        fetchers(3)
        process.signal_python(signal.SIGHUP)
        process.until(lambda: _said(process, "has changed and is taken"))
        write()
        process.until(brought)
        process.signal_python(signal.SIGTERM)
        assert process.wait() == 0, process.log.read_text()
    report = world.verify()
    assert report.clean, report.lines()
