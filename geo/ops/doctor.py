"""`geo doctor`: what is wrong or risky in the installation, the session, the store, the tables, the locks and the links. Only a write check
writes.

Each finding says what was found, where, and the fix.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from geo.config.model import Config, Link
from geo.coordination.claims import Liveness
from geo.coordination.storage_clock import storage_now_us
from geo.delta.ddl import how_to_set
from geo.delta.local_state import why_left_to_spark
from geo.delta.process import Process
from geo.delta.store import StorePath
from geo.errors import GeoError, SchemaError, UsageError
from geo.faults import Tried, faults_here, reason_of, wrong_of
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import Event, EventKind
from geo.journal.events import KEPT, read_events
from geo.locations import authority_of, storage_of
from geo.log.absence import is_new, nothing_in_target
from geo.log.topic_log import seen_log
from geo.log.topics import absent, all_topics, known_topics
from geo.names import ALL_TOPICS, Topic
from geo.now import now_us
from geo.ops.away import met_since
from geo.ops.bucket import look_at
from geo.ops.health import Finding
from geo.ops.link_health import LinksBefore, link_findings
from geo.ops.looks.clocks import of_host, of_regions
from geo.ops.looks.overdue import overdue
from geo.ops.looks.owners import of_owners, two_owners
from geo.ops.looks.retention import of_lag, of_log
from geo.ops.looks.second import refused
from geo.ops.looks.secrets import references
from geo.ops.looks.space import free_space
from geo.ops.looks.subscriptions import forgotten
from geo.ops.looks.versions import of_processes, of_tables
from geo.ops.noted import events_told, noted_since
from geo.ops.problems import grouped, symptom_dated
from geo.ops.region_process import fault_of_region
from geo.ops.region_processes import region_processes
from geo.ops.regions import Regions
from geo.ops.rights import rights
from geo.ops.symptom import Symptom
from geo.reasons import Level, Reason
from geo.replication.carried import replicates
from geo.replication.link_table import read_links
from geo.session import HOW_TO_START, SPARK_DEFAULTS, require_delta
from geo.streams.life import State
from geo.subscription.status import Listed, subscriptions_in
from geo.text import counted, first_line
from geo.times import from_us, in_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MATTERS = {
    "spark.sql.streaming.checkpointFileManagerClass": "each micro-batch takes 45 to 90 ms longer",
    "spark.databricks.delta.commit.idempotencyCheck.enabled": "a commit whose answer is lost on the way lands twice",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "a damaged file may be read as rows that nobody wrote",
}
"""Settings of the session, and what it means that one is not there."""


_NO_SESSION = [Symptom("ok", "session", "was not looked at")]


@dataclass
class _Region:
    """Facts of a region, until there was a `fault`. `ahead_us`: how far this host's clock is ahead of its storage's; None: that
    was not found. `links`: how those are doing that lead into it. `events`: those of health. `listed`: its subscriptions.
    """

    symptoms: list[Symptom] = field(default_factory=list)
    fault: BaseException | None = None
    ahead_us: int | None = None
    links: list[Finding] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)

    def look(self, *looks: Callable[[], Iterable[Symptom]]) -> _Region:
        try:
            for look in looks:
                self.symptoms.extend(look())  # also what it found before it failed
        except faults_here() as error:
            self.fault = error
        return self

    @classmethod
    def answered(cls, answer: Future[_Region]) -> _Region:
        """Takes the facts of a region that may not have answered."""
        try:
            return answer.result()
        except faults_here() as error:
            return cls(fault=error)


def examine(spark: SparkSession | None, config: Config, regions: Regions, write_check: Collection[str] = ()) -> list[Symptom]:
    """All findings, the good ones too, so that one sees what was looked at: of the session, if one is given, and of the regions.
    In those of `write_check` it is tried what their keys may write; UsageError for one whose root is not on S3."""
    for name in write_check:
        if storage_of(config.cluster(name).root or "") != "s3a":
            raise UsageError(f"cluster {name}: what may be written is tried on S3 alone, and its root is elsewhere")
    findings = [*_packages(), *(_NO_SESSION if spark is None else [*_java(spark), *_session(spark)]), *references(config)]
    there = regions.ask(lambda tables: _of_tables(tables, regions.clusters, config))
    places = regions.ask_places(lambda tables: _of_place(tables, config, writes=tables.cluster.name in write_check))
    found = {name: (_Region.answered(places[name]), _Region.answered(there[name])) for name in there}
    links = [finding for _, in_it in found.values() for finding in in_it.links]
    for name, (at_it, in_it) in found.items():
        findings += [*at_it.symptoms, *in_it.symptoms]
        if (fault := in_it.fault or at_it.fault) is not None:
            findings.append(replace(_unreadable(f"cluster {name}", fault), since_us=met_since(name, links)))
    clocks = {name: at_it.ahead_us for name, (at_it, _) in found.items() if at_it.ahead_us is not None}
    # Of all regions at once: who consumes in one acknowledges for the others. Of a region that cannot be read nothing more is said.
    subscriptions = forgotten([one for _, in_it in found.values() for one in in_it.listed], now_us())
    noted = noted_since(event for _, in_it in found.values() for event in in_it.events)
    return [symptom_dated(one, noted) for one in (*findings, *of_regions(clocks), *subscriptions)]


def _of_place(tables: ClusterTables, config: Config, *, writes: bool) -> _Region:
    """Looks at the place of a region, whether or not there is one."""
    one = _Region()
    return one.look(
        partial(_storage, tables),
        partial(free_space, tables),
        partial(_store, tables, config, one, writes=writes),
        partial(_clock, tables, one),
    )


def _of_tables(tables: ClusterTables, clusters: Mapping[str, ClusterTables], config: Config) -> _Region:
    before, one = LinksBefore(tables), _Region(events=events_told(tables, EventKind.HEALTH))
    with Tried():
        one.listed += _subscriptions(tables)
    return one.look(
        partial(_region, tables, clusters, config),
        partial(_tables, tables, config),
        partial(_owners, tables, before),
        partial(_links, tables, clusters, config, before, one),
        partial(_overdue, tables),
    )


def _subscriptions(tables: ClusterTables) -> Iterable[Listed]:
    if not any(one.topic == one.topic.acks for one in known_topics(tables)):
        return ()
    return subscriptions_in(tables, backlog=True)


def _unreadable(where: str, error: BaseException) -> Symptom:
    wrong = wrong_of(error)
    return Symptom("error", where, f"cannot be read: {wrong.what}", wrong.do, wrong.code)


def _java(spark: SparkSession) -> Iterator[Symptom]:
    java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").collect()[0][0]
    level: Level = "ok" if int(java.split(".")[0]) >= 17 else "error"
    yield Symptom(level, "versions", f"Java {java}", "" if level == "ok" else "use Java 17 or newer")


def _packages() -> Iterator[Symptom]:
    yield Symptom("ok", "versions", f"Python {platform.python_version()}")
    try:
        pinned = dict(
            line.split(";")[0].strip().split("==") for line in requires("delta-geo") or () if "==" in line.split(";")[0]
        )
    except PackageNotFoundError:
        pinned = {}
    for package in ("pyspark", "delta-spark"):
        try:
            found = version(package)
        except PackageNotFoundError:
            found = "of the cluster (no Python package)"
        wanted = pinned.get(package)
        if wanted and found != wanted:
            yield Symptom("warn", "versions", f"{package} {found}; tested with {wanted}", f"pip install {package}=={wanted}")
        else:
            yield Symptom("ok", "versions", f"{package} {found}")


def _session(spark: SparkSession) -> Iterator[Symptom]:
    try:
        require_delta(spark)
    except GeoError as error:
        yield Symptom("error", "session", str(error), HOW_TO_START)
    else:
        yield Symptom("ok", "session", "Delta's extension and catalog are active, times are UTC")
    for key, without in _MATTERS.items():
        wanted = SPARK_DEFAULTS[key]
        if spark.conf.get(key, "") != wanted:
            yield Symptom("warn", "session", f"{key} is not set: {without}", f"--conf {key}={wanted}")


def _storage(tables: ClusterTables) -> Iterator[Symptom]:
    where, place = f"cluster {tables.cluster.name}", tables.location or tables.place
    if (why := tables.why_unsafe()) is not None:
        # Another site may write it, with other settings.
        yield Symptom(
            "warn", where, why, "if it is written from here, one of the ways that it names; from here it is only read now"
        )
        return
    folder = tables.lock_folder
    if folder is not None:
        what = "commits of all processes of this host are serialised by file locks"
        others = (
            "a user's own OPTIMIZE, UPDATE, DELETE or VACUUM takes none and may lose commits: use `geo maintain` and `geo erase`"
        )
        yield Symptom("ok", where, f"{place} is a local disk: {what}; {others}")
    elif tables.port is not None:
        what = "every commit is this program's, put if it is absent, by any number of processes"
        others = "a user's own OPTIMIZE, UPDATE or DELETE by Spark may lose commits: use `geo maintain` and `geo erase`"
        yield Symptom("ok", where, f"{place} is on S3: {what}; {others}")
    elif tables.location is None:
        yield Symptom("ok", where, f"{place}: the catalog keeps the tables' places, and with them their commits, to itself")
    else:
        yield Symptom("ok", where, f"{place}: commits are put-if-absent, by the storage or by the log store")
    if folder is not None:
        yield from _locks(where, folder)


def _clock(tables: ClusterTables, one: _Region) -> Iterator[Symptom]:
    """Judges the clock by a file without a name on a local disk; of an object store `_store` does."""
    if tables.is_near:
        one.ahead_us = now_us() - storage_now_us(tables, writes=False)
        yield of_host(f"cluster {tables.cluster.name}", one.ahead_us)


def _region(tables: ClusterTables, clusters: Mapping[str, ClusterTables], config: Config) -> Iterator[Symptom]:
    """Judges an empty region: it may be new, or not be where the configuration says."""
    if known_topics(tables):
        return
    name, place = tables.cluster.name, tables.place
    if any(_should_have_arrived(link, clusters[link.source], config) for link in config.inbound(name)):
        wrong = nothing_in_target(name, place)
        yield Symptom("error", f"cluster {name}", wrong.what, wrong.do, wrong.code)
    else:
        fix = "if the region is new, that is right; else correct its root, or catalog and schema, in the configuration"
        yield Symptom("warn", f"cluster {name}", f"nothing was ever published or replicated at {place}", fix)


def _should_have_arrived(link: Link, source: ClusterTables, config: Config) -> bool:
    """Tells whether something is in a link's source for so long that its target should have it."""
    with Tried():  # of a source that cannot be read its own findings tell
        now_us = storage_now_us(source, writes=False)
        return any(
            not one.is_deleted and replicates(config, link, one) and not is_new(in_us(one.created_at), now_us)
            for one in known_topics(source)
        )
    return False


def _store(tables: ClusterTables, config: Config, one: _Region, *, writes: bool) -> Iterator[Symptom]:
    root, port = tables.location, tables.port
    if root is None or port is None:
        return
    name, where = tables.cluster.name, f"cluster {tables.cluster.name}"
    yield from rights(StorePath(port, root), where, f"geo doctor --write-check {name}", writes=writes)
    roots = (cluster.root for cluster in config.clusters.values() if cluster.root is not None)
    found = yield from look_at(port, where, root, {authority_of(at) for at in roots if storage_of(at) == "s3a"})
    if found is not None:
        one.ahead_us = found.ahead_us


def _locks(where: str, folder: Path) -> Iterator[Symptom]:
    for lock in sorted(folder.rglob("*.lock")):
        holder = Process.decode(lock.read_text(errors="replace"))
        if holder is None or not holder.is_here:
            continue
        if not holder.lives:
            what, fix = f"{holder} died while it committed", "none needed: the next commit waits for its JVM to end"
            yield Symptom("warn", where, f"{lock}: {what}", fix)
        elif stopped := " ".join(map(str, holder.stopped)):
            what = f"{holder} is stopped in the middle of a commit; every other commit to that table waits for it"
            yield Symptom("warn", where, f"{lock}: {what}", f"kill -CONT {stopped}, or kill -KILL {stopped}")


def _tables(tables: ClusterTables, config: Config) -> Iterator[Symptom]:
    where = f"cluster {tables.cluster.name}"
    yield from of_tables(tables)
    topics = [one for one in all_topics(tables, (Topic.parse(topic) for _, topic in read_links(tables))) if not one.is_deleted]
    is_read = any(link.source == tables.cluster.name for link in config.links)
    for one in topics:
        topic = one.topic
        try:
            seen = tables.log(topic).snapshot()
            if (lacks := absent(tables, one, seen)) is not None:
                code = lacks.code if lacks.code is not Reason.SOURCE_GONE or is_read else Reason.TARGET_GONE
                yield Symptom("error", f"{where}, {topic}", lacks.what, lacks.do, code)
                continue
            table, _ = seen_log(tables, topic)
        except faults_here() as error:
            fix = "upgrade delta-geo here, or move that table away" if isinstance(error, SchemaError) else "restore the table"
            yield Symptom("error", f"{where}, {topic}", first_line(error), fix, reason_of(error))
            continue
        if (why := why_left_to_spark(table)) is not None and not table.may_spark_commit:
            fix = "docs/guarantees.md, *What a table asks of its writers*, says which are written to"
            yield Symptom("error", f"{where}, {topic}", f"nothing can be written to this log: {why}", fix, Reason.SCHEMA)
        elif why is not None:
            what = f"Spark reads and writes this log, which takes it some tenths of a second for what takes this program milliseconds: {why}"
            yield Symptom("ok", f"{where}, {topic}", what)
        yield from of_log(
            f"{where}, {topic}", table.properties(), config.policy(topic).longest_outage_s, partial(how_to_set, table)
        )
    for one in known_topics(tables):
        there = one.is_deleted and tables.log(one.topic).exists()
        if there or one.unended is not None:
            fix = f"geo topics delete --cluster {tables.cluster.name} --topic {one.topic}"
            left = "its log is still there" if there else "that has not ended"
            yield Symptom("warn", f"{where}, {one.topic}", f"it was deleted, and {left}", fix, Reason.DELETED)
    yield Symptom("ok", where, f"{counted(sum(not one.is_unknown for one in topics), 'topic')}, their tables are delta-geo's")


def _owners(tables: ClusterTables, before: LinksBefore) -> Iterator[Symptom]:
    name, holders = tables.cluster.name, before.holders
    processes = region_processes(holders)
    yield from of_owners(name, holders.owned(), fault_of_region(name, processes))
    living = [one.claim for one in holders.owned() if one.liveness is Liveness.LIVES]
    now, events = storage_now_us(tables, writes=False), events_told(tables, EventKind.OWNER)
    yield from refused(name, events, [one.since_us for one in processes if not one.holder.is_dead], now)
    yield from two_owners(tables, living)
    yield from of_processes(tables, living)


def _overdue(tables: ClusterTables) -> Iterator[Symptom]:
    topics, now = [one for one in known_topics(tables) if not one.is_deleted], storage_now_us(tables, writes=False)
    if topics:
        begun_us = min(in_us(one.created_at) for one in topics)
        yield from overdue(tables.cluster.name, read_events(tables, from_us(now) - KEPT), begun_us, now)


def _links(
    tables: ClusterTables, clusters: Mapping[str, ClusterTables], config: Config, before: LinksBefore, one: _Region
) -> Iterator[Symptom]:
    name, now = tables.cluster.name, storage_now_us(tables, writes=False)
    with Tried() as tried:
        read = {one.source: clusters.get(one.source) or tables.beside(config.cluster(one.source)) for one in config.inbound(name)}
        found = [(status, finding) for status, finding, _ in link_findings(tables, read, config, ALL_TOPICS, before=before)]
        one.links += [finding for _, finding in found]
        for problem in grouped((finding for _, finding in found), now):
            first = problem.first
            of = first.topic if problem.count == 1 else f"{problem.count:,} of {problem.of:,} topics, such as {first.topic}"
            where, do = f"link {first.link}, {of}", first.do or ""
            yield Symptom(problem.level, where, first.reason, do, first.code, first.since_us, first.health)
        for status, finding in found:
            where = f"link {status.link.name}, {status.topic}"
            if status.state is State.DELAYED and not finding.is_problem(now):
                fix = "it is tried again by itself; look at the reason if it lasts"
                yield Symptom("warn", where, status.reason or "DELAYED", fix, status.code, status.since_us)
            if status.lag is not None and status.lag.seconds:
                log = clusters[status.link.source].log(status.topic)
                yield from of_lag(where, log.properties(), status.lag.seconds, partial(how_to_set, log))
    if tried.fault is not None:
        yield _unreadable(f"links into {name}", tried.fault)
        return
    for source, of in sorted(read_links(tables)):
        if source not in config.clusters:
            what, fix = f"cluster {source} is no longer in the configuration", f"if that was meant: geo clusters remove {source}"
            yield Symptom("warn", f"link {source}->{name}, {of}", what, fix)
