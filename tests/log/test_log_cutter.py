"""A log that was cut is as good as before for everybody who goes on from it."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from geo.config.cluster import Cluster
from geo.config.model import Config, Link, TopicPolicy
from geo.coordination.claiming import claim
from geo.coordination.ownership import release
from geo.coordination.runners import origin_runners
from geo.delta.appending import append_frame
from geo.delta.ddl import set_property
from geo.delta.delta_log import count_data_files, newest_version, read_folder, remove_below
from geo.delta.disk_store import on_disk
from geo.delta.driver import Driver
from geo.delta.frames import read_inserts, read_stream
from geo.delta.sums import sum_of
from geo.delta.table import Table
from geo.journal.cluster import connect
from geo.log import log_cutter
from geo.log.ledgers import Batch
from geo.log.log_cutter import LogCut, LogCutter
from geo.log.topics import create_topic
from geo.names import Topic
from geo.schemas import LEDGERS, LINKS
from tests.rows import ledger_row
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


class Log:
    """A topic's log in cluster us, in a cluster pair us and eu."""

    def __init__(self, spark: SparkSession, root: Path, links: tuple[Link, ...] = ()) -> None:
        self.spark, self._world = spark, World(root, spark=spark)
        clusters = self._world.config.clusters
        self.config = Config("geo.yaml", clusters, links, (TopicPolicy(longest_outage_s=7 * 86_400),))
        self.us, self.eu = (connect(spark, clusters[name]) for name in ("us", "eu"))
        (root / "eu").mkdir(parents=True, exist_ok=True)
        self.table = self.us.log(TOPIC)
        self.folder = Path(self.table.name) / "_delta_log"

    def append(self, commits: int, user_metadata: str | None = None) -> None:
        """One row each, whose entry is the commit's version."""
        for _ in range(commits):
            version = self.table.latest_version() + 1
            append_frame(self.table, self._world.entries("us", version, version + 1), user_metadata)

    def cut(self, **options: Any) -> LogCut:
        done = LogCutter(self.us, self.config).cut(TOPIC, **options)
        assert done is not None
        return done

    @property
    def versions(self) -> tuple[int, ...]:
        return read_folder(on_disk(self.folder)).commits

    def entries(self, table: Table | None = None, version: int | None = None) -> list[int]:
        return sorted(row[0] for row in (table or self.table).read(version).select("entry_id").collect())


@pytest.fixture(scope="module")
def grown(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of versions 0 to 14, with checkpoints each 3; entries 2 to 14."""
    root = tmp_path_factory.mktemp("grown")
    log = Log(spark, root)
    create_topic(log.us, TOPIC)
    set_property(log.table, "delta.checkpointInterval", "3")
    log.append(13)
    return root


@pytest.fixture
def log(grown: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Log:
    shutil.copytree(grown, tmp_path / "clusters")
    # Fewer commits are kept than in earnest; what is cut and how is the same.
    monkeypatch.setattr(log_cutter, "KEEP", 4)
    monkeypatch.setattr(log_cutter, "KEEP_S", 0.0)
    return Log(spark, tmp_path / "clusters", (Link("us", "eu"), Link("eu", "us")))


def test_after_a_cut_the_table_is_as_good_as_before(log: Log, spark: SparkSession, tmp_path: Path) -> None:
    everything = list(range(2, 15))
    assert log.entries() == everything  # so that Spark remembers a snapshot of before
    before = len(os.listdir(log.folder))
    dry = log.cut(dry_run=True)
    assert (dry, len(log.versions)) == (LogCut(9, 6), 15)
    assert log.cut() == LogCut(9, 6)
    assert log.versions == tuple(range(9, 15))
    assert len(os.listdir(log.folder)) < before / 2
    assert not [name for name in os.listdir(log.folder) if name.lstrip(".")[:20] < f"{9:020}"], "nothing of what was cut stays"

    # The session that knew it, one that never saw it, and a look without Spark.
    assert log.entries() == everything
    copied = tmp_path / "copy"
    shutil.copytree(log.table.name, copied)
    fresh = Table(Driver.of(spark.newSession()), str(copied), by_path=True, lock=None)
    assert log.entries(fresh) == everything
    assert log.entries(fresh, 9) == list(range(2, 10))
    assert log.entries(fresh, 11) == list(range(2, 12))
    assert (newest_version(on_disk(log.folder)), count_data_files(on_disk(log.folder))) == (14, 13)
    assert log.table.properties()["delta.checkpointInterval"] == "3"
    assert [commit.version for commit in log.table.commits(0, 14)] == list(range(9, 15))

    log.append(1)
    assert log.entries() == [*everything, 15]
    changes = read_inserts(log.table, 10, 15).select("entry_id", "_commit_version").collect()
    assert sorted(map(tuple, changes)) == [(version, version) for version in range(10, 16)]
    assert log.cut() == LogCut(0, 7), "there is nothing more to go"


def test_what_came_a_moment_ago_stays_however_many_it_is(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_cutter, "KEEP_S", 3600.0)
    assert log.cut() == LogCut(0, 15)


def test_a_session_that_last_looked_before_the_cut_goes_on(log: Log, tmp_path: Path) -> None:
    copied, aside = tmp_path / "copy", tmp_path / "aside"
    shutil.copytree(log.table.name, copied)
    aside.mkdir()
    folder = copied / "_delta_log"
    late = [name for name in os.listdir(folder) if name.lstrip(".")[:20] > f"{4:020}"]  # and _last_checkpoint
    for name in late:
        (folder / name).rename(aside / name)
    table = Table(Driver.of(log.spark), str(copied), by_path=True, lock=None)
    assert log.entries(table) == list(range(2, 5))
    for name in late:
        (aside / name).rename(folder / name)
    found = read_folder(on_disk(folder))
    assert remove_below(on_disk(folder), found, 9) == 9
    assert log.entries(table) == list(range(2, 15))
    assert log.entries(table, 11) == list(range(2, 12))


def test_streams_follow_from_what_is_kept_and_fail_loudly_on_what_is_gone(log: Log, tmp_path: Path) -> None:
    log.cut()

    def followed(version: int) -> list[int]:
        rows = read_stream(log.table, {"startingVersion": str(version)}).select("entry_id")
        place = tmp_path / f"from-{version}"
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", f"{place}-c")
            .trigger(availableNow=True)
            .start(str(place))
        )
        query.awaitTermination()
        return sorted(row[0] for row in log.spark.read.parquet(str(place)).collect())

    assert followed(11) == list(range(11, 15))
    with pytest.raises(StreamingQueryException):
        followed(7)
    with pytest.raises((PySparkException, Py4JJavaError)):
        read_inserts(log.table, 7, 12).collect()
    with pytest.raises((PySparkException, Py4JJavaError)):
        log.table.read(7).collect()


def test_what_is_left_by_an_interrupted_cut_is_without_a_gap(log: Log) -> None:
    found = read_folder(on_disk(log.folder))
    part = {version: found.files[version] for version in sorted(found.files) if version < 5}
    remove_below(on_disk(log.folder), type(found)(found.commits, found.checkpoints, {**part, 9: ()}), 9)
    assert log.versions == tuple(range(5, 15))
    assert log.entries() == list(range(2, 15))
    assert log.cut() == LogCut(4, 6)


def test_a_small_log_is_not_looked_at_further(log: Log) -> None:
    assert log.cut(least=15) == LogCut(0, 15)
    assert LogCutter(log.us, log.config).cut(Topic.parse("persistent://shop/web/none")) is None


# -- who holds it ------------------------------------------------------------------------------------------------------


def _link_row(source: str, source_version: int | None, target_version: int | None, age: timedelta) -> dict[str, Any]:
    return {
        "source": source, "topic": str(TOPIC), "state": "RUNNING", "reason": None, "generation": 1, "origins": [source],
        "source_table_id": "t", "source_version": source_version, "source_commit": "c", "target_table_id": "t",
        "target_version": target_version, "target_commit": "c", "floors": None, "expired": 0, "sequence": 1,
        "updated_at": datetime.now(timezone.utc) - age,
    }  # fmt: skip


def _aged(log: Log, until: int) -> None:
    """Let the commits up to this one be of before yesterday."""
    for version in log.versions:
        at = (datetime.now(timezone.utc) - timedelta(hours=31 if version <= until else 1)).timestamp()
        os.utime(log.folder / f"{version:020}.json", (at, at))


def test_a_link_that_reads_the_log_finds_its_place_for_a_day(log: Log) -> None:
    log.eu.journal(LINKS).append([_link_row("us", 7, 4, timedelta(hours=25))])
    done = log.cut()
    assert done == LogCut(6, 9, "link us->eu, RUNNING, at version 7, last heard of 25.0 hours ago")
    assert log.versions[0] == 6
    _aged(log, 8)  # what it has read and the next commit are of before that, whenever it says so
    log.eu.journal(LINKS).append([{**_link_row("us", 7, 4, timedelta(minutes=1)), "sequence": 2}])
    assert log.cut() == LogCut(3, 6)


def test_a_link_that_writes_the_log_finds_its_own_commits_for_a_day(log: Log) -> None:
    log.us.journal(LINKS).append([_link_row("eu", 3, 7, timedelta(hours=2))])
    assert log.cut().held_by == "link eu->us, RUNNING, at version 7, last heard of 2.0 hours ago"
    assert log.versions[0] == 6


def test_whoever_compares_for_the_first_time_finds_the_commits_since_it_began(log: Log) -> None:
    (ownership,) = claim(log.us, [origin_runners({"eu"}, TOPIC, "us")])
    held = log.cut()
    assert held.commits == 0
    assert (held.held_by or "").startswith("origin eu of persistent://")
    log.us.journal(LINKS).append([_link_row("eu", 3, 7, timedelta(hours=2))])
    assert (log.cut().held_by or "").startswith("link eu->us"), "its row says from where on it needs them"
    release([ownership])


@pytest.mark.parametrize("what", ["broken", "away", "nothing-read"])
def test_whose_place_is_not_known_holds_a_day_of_commits(log: Log, what: str) -> None:
    _aged(log, 7)
    root = Path(str(log.config.cluster("eu").root))
    if what == "nothing-read":
        log.eu.journal(LINKS).append([_link_row("us", None, None, timedelta(hours=2))])
    elif what == "broken":
        (root / "system" / "links" / "_delta_log").mkdir(parents=True)
        (root / "system" / "links" / "_delta_log" / f"{0:020}.json").write_text("no JSON\n")
    else:
        root.rmdir()
    done = log.cut()
    assert (done.commits, log.versions[0]) == (6, 6)
    assert done.held_by is not None
    assert done.held_by.startswith("link us->eu" if what == "nothing-read" else "cluster eu, which cannot be read")


def test_a_reader_that_the_configuration_here_does_not_list_holds_its_place(log: Log) -> None:
    log.config = replace(log.config, links=(Link("eu", "us"),))
    log.eu.journal(LINKS).append([_link_row("us", 7, 4, timedelta(hours=2))])
    assert log.cut() == LogCut(6, 9, "link us->eu, RUNNING, at version 7, last heard of 2.0 hours ago")


def test_what_another_clusters_links_say_by_a_name_that_is_not_its_own_does_not_count(log: Log, tmp_path: Path) -> None:
    asia = connect(log.spark, Cluster("asia", root=str(tmp_path / "clusters" / "asia")))
    create_topic(asia, TOPIC)
    asia.journal(LINKS).append([_link_row("us", 14, 4, timedelta(minutes=1))])
    log.config = replace(
        log.config, clusters={**log.config.clusters, "eu": Cluster("eu", root=str(tmp_path / "clusters" / "asia"))}
    )
    assert (log.cut().held_by or "").startswith("cluster eu, which cannot be read")


def test_a_producer_that_did_not_stop_finds_the_commits_it_has_not_recorded(log: Log) -> None:
    def record(version: int, sequence: int, *, complete: bool = False, age: timedelta = timedelta(hours=40)) -> None:
        at = datetime.now(timezone.utc) - age
        row = ledger_row(TOPIC, table_version=version, sequence=sequence, complete=complete, recorded_at=at)
        log.us.journal(LEDGERS).append([row])

    record(4, 1)
    assert log.cut(dry_run=True) == LogCut(9, 6), "none of its commits is there: what it recorded is all"
    _say(log, 5, Batch("other", 1, (), {}).encode())
    assert log.cut(dry_run=True) == LogCut(9, 6), "another producer's is not its own"
    _say(log, 6, Batch("p", 1, (), {}).encode())
    held = log.cut(dry_run=True)
    assert held.commits == 3
    assert held.held_by is not None
    assert held.held_by.startswith("producer p, which has not recorded what it published since version 4")
    record(4, 2, age=timedelta(days=8))
    assert log.cut(dry_run=True) == LogCut(9, 6), "nobody keeps a place for longer than longest_outage"
    record(4, 3, complete=True)
    assert log.cut(dry_run=True) == LogCut(9, 6), "it stopped cleanly"
    record(6, 4)
    assert log.cut() == LogCut(9, 6)


def _say(log: Log, version: int, record: str) -> None:
    """Let a commit carry this record."""
    path = log.folder / f"{version:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["commitInfo"]["userMetadata"] = record
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    sum_of(path).unlink()
