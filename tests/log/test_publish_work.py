"""A publisher's stream that is begun again: what may pass does, each row once; what a person must see to ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.config.publication import Publication
from geo.errors import AlreadyOwnedError, SourceChangedError
from geo.log.publish import publish
from geo.log.publish_stream import PublishStream
from geo.log.publish_work import Begin, Publishing
from geo.streams import timetable
from tests.waiting import InThread
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

WHAT = Publication("eu", TOPIC, "p", jsonl="lines")


def _lines(folder: Path, name: str, keys: range) -> None:
    (folder / f".{name}").write_text("".join(f"k{key}\n" for key in keys))
    (folder / f".{name}").rename(folder / name)


class Source:
    """A folder of text files as a stream, of which no row can be read while a file named `away` is beside it."""

    def __init__(self, world: World, folder: Path) -> None:
        self.folder, self.away = folder / "lines", folder / "away"
        self.folder.mkdir()
        self.world = world

    def frame(self) -> DataFrame:
        away = str(self.away)

        def read(line: str) -> str:  # behind a lambda: Spark warns of type hints that it cannot use
            if Path(away).exists():
                raise OSError("the source is away")
            return line

        lines = self.world.spark.readStream.text(str(self.folder))
        return lines.select(F.udf(lambda line: read(line), "STRING")("value").alias("key"))

    def begin(self, trigger: str) -> Begin:
        def begin(take_over: bool, _: Callable[[], bool]) -> PublishStream:
            stream = publish(self.frame(), TOPIC, self.world.config, "eu", producer="p", trigger=trigger, take_over=take_over)
            assert isinstance(stream, PublishStream)
            return stream

        return begin

    def keys(self) -> list[str]:
        return sorted(row["key"] for row in self.world.log("eu").read().collect())


@pytest.fixture
def source(world: World, tmp_path: Path) -> Source:
    return Source(world, tmp_path)


def test_a_stream_that_failed_is_begun_again_and_publishes_each_row_once(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    _lines(source.folder, "a", range(5))
    runner = Publishing(source.begin("100 ms"), WHAT, once=False)
    with InThread(runner.run, runner.stop) as running:
        running.until(lambda: runner.work.published.rows == 5)
        source.away.touch()
        _lines(source.folder, "b", range(5, 9))
        running.until(lambda: runner.life.error is not None)
        source.away.unlink()
        running.until(lambda: runner.work.published.rows == 9)
    assert running.ended.rows == 9
    assert source.keys() == sorted(f"k{key}" for key in range(9))
    assert "DELAYED: " in caplog.text
    assert source.world.verify().clean
    # It was given back: the next one needs not take it over.
    assert Publishing(source.begin("available-now"), WHAT, once=True).run().rows == 0


def test_a_run_that_ends_gives_up_after_some_tries_and_says_why(source: Source) -> None:
    _lines(source.folder, "a", range(5))
    source.away.touch()
    with pytest.raises(Exception, match="the source is away"):
        Publishing(source.begin("available-now"), WHAT, once=True).run()
    source.away.unlink()
    assert Publishing(source.begin("available-now"), WHAT, once=True).run().rows == 5


def test_what_a_person_must_see_to_ends_it_at_once(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "LOG_LOOK_S", 0.0)
    _lines(source.folder, "a", range(5))
    runner = Publishing(source.begin("100 ms"), WHAT, once=False)
    with InThread(runner.run, runner.stop) as running:
        running.until(lambda: runner.work.published.rows == 5)
        with pytest.raises(AlreadyOwnedError, match="already run by"):
            Publishing(source.begin("available-now"), WHAT, once=True).run()
        source.world.spark.sql(f"UPDATE {source.world.log('eu').sql} SET key = 'x' WHERE entry_id = 3")
        _lines(source.folder, "b", range(5, 9))
        running.join()
        with pytest.raises(SourceChangedError, match="is a UPDATE by"):
            _ = running.ended
