"""A power cut on a local disk takes what the operating system still held: nothing that was acknowledged is among it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from geo.delta.appending import append_rows
from geo.delta.ddl import create_table, set_property
from geo.delta.driver import Driver
from geo.delta.table import Table
from geo.disk import SETTING
from geo.fleet.backfill import Backfill, Mode, backfill
from geo.log.publish import publish_json_lines
from geo.schemas import TOPIC_LOG
from geo.streams.trigger import AVAILABLE_NOW
from geo.subscription.consumer.subscription import Subscription
from tests.delta.logs import rows_of
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


class Disk:
    """What of the files below a folder was written out to the disk: contents of files, names in folders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._contents: dict[Path, bytes] = {}
        self._names: dict[Path, set[str]] = {}

    def written_out(self, handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path != self._folder and self._folder not in path.parents:
            return
        if path.is_dir():
            self._names[path] = set(os.listdir(path))
        else:
            self._contents[path] = path.read_bytes()

    def named(self, path: Path, other: Path) -> None:
        """A file has another name now, or one more: what of it is on the disk is the same."""
        if path in self._contents:
            self._contents[other] = self._contents[path]

    def cut(self, into: Path, *, all_names: bool) -> int:
        """Make what is left after a power cut: files come back as they were written out, else empty; with a name that was written
        out, or with `all_names` each. Returns how many came back empty or not at all."""
        lost = 0
        for folder, _, files in os.walk(self._folder):
            for name in files:
                path = Path(folder, name)
                content = self._contents.get(path)
                lost += content is None
                if not all_names and not self._is_named(path):
                    lost += content is not None
                    continue
                copy = into / path.relative_to(self._folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content or b"")
        return lost

    def _is_named(self, path: Path) -> bool:
        above = [parent for parent in path.parents if parent == self._folder or self._folder in parent.parents]
        return all(one.name in self._names.get(one.parent, ()) for one in (path, *above[:-1]))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Of `tmp_path`/before."""
    monkeypatch.delenv(SETTING, raising=False)
    disk, fsync = Disk(tmp_path / "before"), os.fsync

    def seen(handle: int) -> None:
        fsync(handle)
        disk.written_out(handle)

    def told(act: Callable[..., None]) -> Callable[..., None]:
        def acted(path: Path, other: Path, **options: Any) -> None:
            act(path, other, **options)
            disk.named(Path(path), Path(other))

        return acted

    monkeypatch.setattr(os, "fsync", seen)
    for act in ("link", "rename", "replace"):
        monkeypatch.setattr(os, act, told(getattr(os, act)))
    return disk


def test_what_was_published_replicated_and_acknowledged_is_there_and_goes_on_once(
    spark: SparkSession, tmp_path: Path, disk: Disk
) -> None:
    """A file whose name was not written out is gone, or there and empty: as a file system may have it."""
    (tmp_path / "before").mkdir()
    world, lines = World(tmp_path / "before", spark=spark), tmp_path / "in.jsonl"
    delivered: list[str] = []

    def give(first: int, end: int) -> None:
        with lines.open("a") as file:
            file.writelines(json.dumps({"key": f"line {n}"}) + "\n" for n in range(first, end))

    def publish(world: World) -> None:
        publish_json_lines(spark, str(lines), TOPIC, world.config, "eu").await_termination()
        for target in world.config.clusters:
            world.replicate(target)

    def consume(world: World) -> None:
        def note(messages: DataFrame) -> DataFrame:
            delivered.extend(row["key"] for row in messages.select("key").collect())
            return messages

        Subscription(spark, TOPIC, "s", world.config, "us", start="earliest").run(note, trigger=AVAILABLE_NOW)

    give(0, 40)
    publish(world)
    set_property(world.log("eu"), "delta.checkpointInterval", "2")  # checkpoints are cut, too
    give(40, 60)
    publish(world)
    world.publish("us", 20)
    for target in world.config.clusters:
        world.replicate(target)
    consume(world)

    delivered_before, held = list(delivered), {name: world.messages(name) for name in ("eu", "us")}
    give(60, 70)
    for all_names in (False, True):
        folder = tmp_path / f"after-{all_names}"
        assert disk.cut(folder, all_names=all_names) > 0
        after = World(folder, spark=spark)
        assert {name: after.messages(name) for name in ("eu", "us")} == held
        delivered[:] = delivered_before
        publish(after)
        after.assert_clean()
        consume(after)
        assert sorted(delivered) == sorted([*(f"line {n}" for n in range(70)), *(f"k{n}" for n in range(20))])
        own = [row["key"] for (origin, *_), row in after.messages("us").items() if origin == "eu"]
        assert sorted(own) == sorted(f"line {n}" for n in range(70))
        assert after.verify().clean, "all topics, as Spark reads them"


def test_a_table_in_the_place_of_one_that_was_written_out_is_written_out_whole(
    spark: SparkSession, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = (
        Table(Driver.of(spark), str(tmp_path / name), by_path=True, lock=None) for name in ("before/log", "after/log")
    )

    def append(number: int) -> None:
        append_rows(before, rows_of(number, number + 1))

    create_table(before, TOPIC_LOG)
    append(0)
    shutil.rmtree(before.name)
    with monkeypatch.context() as another_process:
        another_process.setenv(SETTING, "off")
        create_table(before, TOPIC_LOG)
        for number in range(3):
            append(number)
        for path in Path(before.name).rglob("*"):
            os.utime(path, (0, 0))  # as a copy of an old log has it
    append(3)
    disk.cut(tmp_path / "after", all_names=True)
    assert sorted(row["entry_id"] for row in after.read().collect()) == [0, 1, 2, 3]


def test_files_that_a_backfill_copied_can_be_read(spark: SparkSession, tmp_path: Path, disk: Disk) -> None:
    """Spark refuses a file whose sums are there by their name alone."""
    (tmp_path / "before").mkdir()
    links = [{"source": "us", "target": "eu", "start": "latest"}]
    world = World(tmp_path / "before", links=links, spark=spark)
    world.write("us", 0, 30)
    world.replicate("eu")
    (done,), not_done = backfill(spark, world.config, "us", "eu", what=Backfill(mode=Mode.FILES))
    assert (done.by_file, not_done) == (30, {})
    disk.cut(tmp_path / "after", all_names=True)
    assert World(tmp_path / "after", links=links, spark=spark).log("eu").read().count() == 30
