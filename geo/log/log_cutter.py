"""Cutting the logs of tables on a local disk and on S3: finds out who goes on from where, asks `cut`, removes the files.

On HDFS, ABFS, GCS and in catalogs there Delta's own clean-up (delta.logRetentionDuration) is left to do it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from geo.config.model import Config
from geo.coordination.claims import Owner
from geo.coordination.owners import named_owners
from geo.coordination.runners import RunnerKind, RunnerName
from geo.coordination.storage_clock import checked_now_us
from geo.delta.cut import HOLDS_S, KEEP, KEEP_S, Cut, LogReader, cut_below
from geo.delta.delta_log import LogFolder, committed_before, opened_commits, read_folder, remove_below
from geo.delta.store import ReadPath, WritePath
from geo.disk import local_path
from geo.errors import RetryableError
from geo.faults import faults_here
from geo.journal.cluster import ClusterTables
from geo.journal.rows import Row
from geo.log.ledgers import Batch
from geo.names import Topic
from geo.schemas import LEDGERS, LINKS, VERSION_STARTS, VERSION_SUBSCRIPTIONS
from geo.text import first_line
from geo.times import from_us

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogCut:
    """The commits that were cut off a log, or would be. `held_by` says who keeps more of it from going, and why."""

    commits: int
    kept: int
    held_by: str | None = None


class LogCutter:
    """Cuts the topic logs of one cluster, some at once if asked so. One is made for each round: it reads each target's links once."""

    def __init__(self, tables: ClusterTables, config: Config) -> None:
        self._tables, self._config = tables, config
        self._now = from_us(checked_now_us(tables, f"{tables.cluster.name}: no log is cut", writes=False))
        self._cluster = tables.cluster.name
        self._read: dict[str, Mapping[str, Row] | None] = {}
        self._asks = threading.Lock()

    def cut(self, topic: Topic, *, least: int = 0, dry_run: bool = False) -> LogCut | None:
        """Cut the topic's log if it has more than `least` commits. None where that is left to Delta, or there is no log.

        Nothing that is at most a day behind has to begin again for it: links in both directions. Nor a producer that did not stop cleanly, as long
        as links may be away.
        """
        table = self._tables.log(topic)
        if not table.exists() or (folder := table.log_folder) is None:
            return None
        found = read_folder(folder)
        if len(found.commits) <= max(least, KEEP):
            return LogCut(0, len(found.commits))
        a_day_old = committed_before(folder, found.commits, self._now.timestamp() - HOLDS_S)
        keep = max(KEEP, found.newest - committed_before(folder, found.commits, self._now.timestamp() - KEEP_S))
        with self._asks:
            readers = [*self._outbound(topic), *self._inbound(topic), *self._versions(topic)]
        cut = cut_below(found.newest, found.checkpoints, readers, keep=keep, a_day_old=a_day_old)
        if producers := list(self._producers(topic, folder, found.commits[0], cut.below)):
            cut = cut_below(found.newest, found.checkpoints, [*readers, *producers], keep=keep, a_day_old=a_day_old)
        return _cut(folder, found, cut, dry_run=dry_run)

    def _outbound(self, topic: Topic) -> Iterator[LogReader]:
        """The links that read this log, by what the other clusters say themselves: a region's configuration may list its own inbound
        links alone."""
        for target in self._config.clusters:
            if target == self._cluster:
                continue
            rows = self._links_of(target)
            if rows is None:
                yield LogReader(f"cluster {target}, which cannot be read: whether a link there reads this log is not known", None)
            elif (row := rows.get(str(topic))) is not None:
                yield self._link(f"link {self._cluster}->{target}", row, row["source_version"])

    def _inbound(self, topic: Topic) -> Iterator[LogReader]:
        """The links that write this log: a start looks at what came since their last row."""
        own = [row for row in self._own_links if row["topic"] == str(topic) and row["target_version"] is not None]
        for row in own:
            yield self._link(f"link {row['source']}->{self._cluster}", row, row["target_version"])
        recorded = {origin for row in own for origin in row["origins"]}
        for name, owner in self._owned_ways:
            if name.topic == topic and name.who not in recorded:
                yield LogReader(f"{name}, which compares both logs", None, self._age_s(owner.since), HOLDS_S)

    @cached_property
    def _owned_ways(self) -> list[tuple[RunnerName, Owner]]:
        """Owners of the ways by which messages come. A rebuild, or the first comparison of a link, knows the commits since it began and has no row."""
        return [(name, one) for name, one in named_owners(self._tables, RunnerKind.ORIGIN) if one.is_owned]

    def _link(self, name: str, row: Row, version: int | None) -> LogReader:
        return LogReader(f"{name}, {row['state']}", version, self._age_s(row["updated_at"]))

    def _links_of(self, target: str) -> Mapping[str, Row] | None:
        """The rows of the links from here to `target`, by topic; None if it cannot be read: then a day of commits is kept."""
        if target not in self._read:
            try:
                there = self._tables.beside(self._config.cluster(target))
                root = local_path(there.location) if there.location is not None else None
                if root is not None and not root.exists():
                    raise RetryableError(f"{root} is not there")
                there.refuse_other_cluster()  # what another one's links say is about other logs
                self._read[target] = {row["topic"]: row for row in there.journal(LINKS).newest(source=self._cluster)}
            except faults_here() as error:
                log.info("cluster %s cannot be read, a day of commits is kept for its links: %s", target, first_line(error))
                self._read[target] = None
        return self._read[target]

    @cached_property
    def _own_links(self) -> list[Row]:
        return self._tables.journal(LINKS).newest()

    def _versions(self, topic: Topic) -> Iterator[LogReader]:
        """Consumers of versions. Those of this log go on behind what they have finished. Those of other clusters may come to begin at the version
        that was told.
        """
        for row in self._tables.journal(VERSION_SUBSCRIPTIONS).newest(topic=str(topic)):
            if not row["deleted"]:
                # By its checkpoint: how far it is is not known here, so a day of commits is kept.
                yield LogReader(f"version subscription {row['subscription']}", row["finished"], self._age_s(row["updated_at"]))
        for row in self._tables.journal(VERSION_STARTS).newest(topic=str(topic), cluster=self._cluster):
            if row["subscription"] and row["start"] is not None:
                yield LogReader(
                    f"consumers that move here of {row['subscription']}", row["start"], self._age_s(row["updated_at"])
                )

    def _producers(self, topic: Topic, folder: ReadPath, oldest: int, below: int) -> Iterator[LogReader]:
        """The producers that did not stop cleanly and have commits in what would go, versions `oldest` to `below`, that their
        record does not tell of."""
        outage_s = self._config.policy(topic).longest_outage_s
        newest: dict[str, Row] = {}
        for row in sorted(self._tables.journal(LEDGERS).newest(topic=str(topic)), key=LEDGERS.order_of):
            newest[row["producer"]] = row
        unsure = {p: r for p, r in newest.items() if not r["complete"] and self._age_s(r["recorded_at"]) <= outage_s}
        if not unsure:
            return
        first = max(oldest, min(row["table_version"] for row in unsure.values()) + 1)
        for commit in opened_commits(folder, first, below - 1):
            batch = Batch.decode(commit.user_metadata)
            if batch is None or batch.producer not in unsure:
                continue
            known = unsure[batch.producer]
            if commit.version > known["table_version"]:
                del unsure[batch.producer]
                version = known["table_version"]
                name = f"producer {batch.producer}, which has not recorded what it published since version {version}"
                yield LogReader(name, max(oldest, version + 1), self._age_s(known["recorded_at"]), outage_s)

    def _age_s(self, time: datetime) -> float:
        return (self._now - time).total_seconds()


def _cut(folder: WritePath, found: LogFolder, cut: Cut, *, dry_run: bool) -> LogCut:
    gone = sum(version < cut.below for version in found.commits)
    if not dry_run:
        remove_below(folder, found, cut.below)
    held_by = None
    if (reader := cut.held_by) is not None:
        place = "at a place that is not known" if reader.version is None else f"at version {reader.version}"
        held_by = f"{reader.name}, {place}, last heard of {reader.age_s / 3600:.1f} hours ago"
    return LogCut(gone, len(found.commits) - gone, held_by)
