"""One topic in all clusters, compared at versions that `verify.py` has pinned: what is counted, and how."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from geo.config.model import Config, Link
from geo.delta.arrow_rows import rows_frame
from geo.delta.history import CommitName
from geo.delta.table import Table
from geo.ids import LedgerId
from geo.journal.cluster import ClusterTables
from geo.late import F, spark_errors, spark_sql
from geo.log.promises import Promise, due, lost_entries, passed, told_range
from geo.log.topics import Registered
from geo.names import Topic
from geo.ops.verify.checks import Expected, Way, at, overdue_of
from geo.ops.verify.columns import ID, differing, facts
from geo.ops.verify.link_ends import Ends, key, not_accepted
from geo.ops.verify.report import EXAMPLES, Category, ClusterResult, Difference, LinkResult

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession


@dataclass(frozen=True, slots=True)
class Log:
    """One cluster's log of the topic and its two pins. `early` is None if the log came into being between them."""

    table: Table
    early: int | None
    late: int


Promises = Mapping[str, Sequence[Promise]]
"""Promises of one topic, by cluster."""

TopicIn = tuple[Topic, str]
"""A topic in a cluster."""

Registries = Mapping[str, Mapping[Topic, Registered]]
"""Registered topics, by cluster and topic."""

_Stands = tuple[CommitName | None, Mapping[str, int] | None]


@dataclass(frozen=True, slots=True)
class Pinned:
    """Facts that are read of all clusters before any log is. `pins`: the versions of the logs that are there, the early ones first. `floors`: how
    links stand after the last of them, `now_us` the time then.
    """

    config: Config
    clusters: Mapping[str, ClusterTables]
    registries: Registries
    topics: Sequence[Topic]
    logs: Mapping[TopicIn, Table]
    ends: Ends
    promises: Mapping[Topic, Promises]
    pins: Sequence[Mapping[TopicIn, int]]
    floors: Ends
    now_us: int

    def of(self, topic: Topic) -> list[dict[str, int]]:
        """The pins of a topic, each by cluster."""
        return [{name: pin[topic, name] for name in self.clusters if (topic, name) in pin} for pin in self.pins]


@dataclass(frozen=True, slots=True)
class _Ledger:
    """A ledger in one log, of what should be there and has not expired: entries base to last, `lacking` some."""

    cluster: str
    origin: str
    ledger_id: int
    base: int
    last: int
    lacking: int


_Counts = dict[tuple[str, Category | None], tuple[int, tuple[str, ...]]]
"""Counts and examples, by where and category."""


def _least(spark: str) -> Column:
    """The least ids of a group, EXAMPLES at most; by a Spark that knows none but the least, that one."""
    return F.array_compact(F.array(F.min("id"))) if spark.startswith(("4.0.", "4.1.")) else F.min_by("id", "id", EXAMPLES)


class Comparison:
    """One topic in all clusters. Two jobs, ledgers and then ids side by side, and a third if holes are to be shown."""

    def __init__(
        self, seen: Pinned, topic: Topic, links: Sequence[Link], ways: Collection[Way], due_before: Mapping[str, int]
    ) -> None:
        """`due_before`: of links by name, before which time a message was published that is no longer in flight."""
        self._topic, self._links = topic, links
        early, late = seen.of(topic)
        logs = self._logs = {name: Log(seen.logs[topic, name], early.get(name), version) for name, version in late.items()}
        ends, ttl_s = seen.ends, seen.config.policy(topic).message_ttl_s
        expired_before_us = None if ttl_s is None else seen.now_us - ttl_s * 1_000_000
        self._ends = {link.name: end for link in links if (end := ends.get(key(link, topic)))}
        self._expires = expired_before_us is not None
        self._promises = {
            name: unaccepted(of, logs[name].table.table_id(), expired_before_us, standings(name, topic, links, ends))
            for name, of in seen.promises[topic].items()
            if name in logs
        }
        read = {name: log.table.read(log.late) for name, log in logs.items()}
        kinds = differing(rows.schema for rows in read.values())
        self._rows = {name: facts(rows, expired_before_us, seen.now_us, kinds) for name, rows in read.items()}
        # Also of clusters without a log, into which all is still in flight.
        self._names = sorted({*logs, *(name for link in links for name in (link.source, link.target))})
        known = {*ends, *ways}
        self._expected = Expected.of(topic, links, logs, self._names, known=known, ends=seen.floors, due_before=due_before)
        self._found: _Counts = {}
        self.notes: list[str] = []

    def run(self) -> None:
        if not self._logs:
            return
        ledgers, noted = self._ledgers(), list(self.notes)
        try:
            counted = self._count(self._side_by_side(ledgers))
        except Exception as error:
            # Files of an old version are found vacuumed only while they are read, and Spark passes that on as it comes
            # from the JVM. If it was a late pin that could not be read, the second try says so.
            if "FILE_NOT_EXIST" not in str(error):
                raise
            self.notes = noted
            counted = self._count(self._side_by_side(ledgers, read_ends=False))
        self._found = counted
        self._add_holes(ledgers)

    def links(self) -> Iterable[LinkResult]:
        for link in self._links:
            end = self._ends.get(link.name)
            state, version = (end.state, end.version) if end else (None, None)
            both, found = self._results(link.name)
            left_out = {one: not_accepted(end, one.count) for one in found if one.category is Category.IMPOSSIBLE}
            findings = tuple(replace(one, count=count) for one in found if (count := left_out.get(one, one.count)))
            yield LinkResult(str(self._topic), link.name, state, version, both, findings)

    def overdue(self) -> dict[str, int]:
        """Counts, by link, the messages that are no longer in flight."""
        return {link.name: found[0] for link in self._links if (found := self._found.get((overdue_of(link.name), None)))}

    def clusters(self) -> Iterable[ClusterResult]:
        for name, log in self._logs.items():
            yield ClusterResult(str(self._topic), name, log.late, *self._results(name))

    def _results(self, where: str) -> tuple[int, tuple[Difference, ...]]:
        good, _ = self._found.get((where, None), (0, ()))
        return good, tuple(Difference(c, *self._found[where, c]) for c in Category if (where, c) in self._found)

    # -- ledgers -------------------------------------------------------------------------------------------------------

    def _belonging(self, name: str) -> DataFrame:
        """Rows of a log by which its ledgers are judged: its own, and messages that a link should have replicated.

        Without those that have expired. They are a prefix of their ledger (publish_time never decreases in it), and an expiry may have dropped any
        part of it.
        """
        return self._rows[name].where(self._expected.belongs(name) & ~F.col("has_expired"))

    def _ledgers(self) -> list[_Ledger]:
        rows = (self._belonging(name).select(F.lit(name).alias("cluster"), *ID) for name in self._logs)
        ends = reduce(spark_sql.DataFrame.unionByName, rows).groupBy("cluster", "origin", "ledger_id").agg(
            F.min("entry_id").alias("first"),
            F.max("entry_id").alias("last"),
            F.count_distinct("entry_id").alias("entries"),
        )  # fmt: skip
        return [self._ledger(row) for row in ends.collect()]

    def _ledger(self, row: Row) -> _Ledger:
        cluster, origin, ledger_id = row["cluster"], row["origin"], row["ledger_id"]
        # With a TTL whatever is below the first may have expired; what of it has not is found by comparing with a peer.
        base = row["first"] if self._expires else self._expected.floors[cluster].get(f"{origin}:{ledger_id}", 0)
        return _Ledger(cluster, origin, ledger_id, base, row["last"], row["last"] - base + 1 - row["entries"])

    def _add_holes(self, ledgers: Sequence[_Ledger]) -> None:
        """The holes of ledgers, to those already found by comparing, and the ends that were recorded and that no log has."""
        held: dict[LedgerId, int] = {}
        for ledger in ledgers:
            of = LedgerId(ledger.origin, ledger.ledger_id)
            held[of] = max(ledger.last, held.get(of, -1))
        for name, promises in self._promises.items():
            if lost := lost_entries(promises, held):
                count, examples = self._found.get((name, Category.HOLES), (0, ()))
                ranges = tuple(told_range(*one) for one in lost.items())
                count += sum(last - first + 1 for first, last in lost.values())
                self._found[name, Category.HOLES] = count, (ranges + examples)[:EXAMPLES]
        for name in self._logs:
            broken = sorted(
                (ledger for ledger in ledgers if ledger.cluster == name and ledger.lacking),
                key=lambda ledger: (ledger.origin, ledger.ledger_id),
            )
            if broken:
                count, examples = self._found.get((name, Category.HOLES), (0, ()))
                count += sum(ledger.lacking for ledger in broken)
                self._found[name, Category.HOLES] = count, (examples + self._gaps(name, broken[:EXAMPLES]))[:EXAMPLES]

    def _gaps(self, name: str, ledgers: Sequence[_Ledger]) -> tuple[str, ...]:
        """The first entry of each gap of some ledgers in a log."""
        bases = self._ledger_frame(ledgers)
        due = F.coalesce(F.lag("entry_id").over(spark_sql.Window.partitionBy(*ID[:2]).orderBy("entry_id")) + 1, at("base", name))
        rows = self._belonging(name).join(F.broadcast(bases), list(ID[:2])).withColumn("due", due)
        gaps = rows.where("entry_id > due").select("origin", "ledger_id", F.col("due").alias("entry_id"))
        return _texts(gaps.orderBy(*ID).limit(EXAMPLES).collect())

    def _ledger_frame(self, ledgers: Iterable[_Ledger]) -> DataFrame:
        """A row per ledger with the columns base and last of each cluster, NULL where it has none of the ledger."""
        by_id: dict[tuple[str, int], dict[str, _Ledger]] = {}
        for ledger in ledgers:
            by_id.setdefault((ledger.origin, ledger.ledger_id), {})[ledger.cluster] = ledger
        types = {"origin": "STRING", "ledger_id": "BIGINT"}
        types |= {f"{what} {n}": "BIGINT" for n in self._names for what in ("base", "last")}
        rows = [
            {"origin": origin, "ledger_id": ledger_id}
            | {f"base {n}": at[n].base for n in at}
            | {f"last {n}": at[n].last for n in at}
            for (origin, ledger_id), at in by_id.items()
        ]
        return rows_frame(self._spark, types, rows)

    @property
    def _spark(self) -> SparkSession:
        return next(iter(self._logs.values())).table.spark

    # -- ids side by side ----------------------------------------------------------------------------------------------

    def _side_by_side(self, ledgers: Sequence[_Ledger], *, read_ends: bool = True) -> DataFrame:
        """A row per MessageId: what every log says of it. This is the full outer join of all logs, in one shuffle.

        Columns: the id; `row c` (as `facts`. NULL: not in c), `copies c`, `early c` (in c at its early pin). And `base c` and `last c` (of its
        ledger) of each cluster c. `end l` (was in the source at the end of link l) of each link l.
        """
        columns = ("digest", "is_message", "may_cross", "has_expired", "is_impossible", "replicate_to", "publish_time")
        late = [
            rows.select(*ID, F.lit(f"row {name}").alias("seen"), F.struct(*columns).alias("row"))
            for name, rows in self._rows.items()
        ]
        older: dict[str, DataFrame] = {}
        always: dict[str, Column] = {}
        for name in self._names:
            log, column = self._logs.get(name), f"early {name}"
            if log is None or log.early is None:
                always[column] = F.lit(False)
            elif log.early == log.late:
                always[column] = F.col(f"`row {name}`").isNotNull()
            else:
                older[column] = log.table.read(log.early)
        for link in self._links:
            column = f"end {link.name}"
            at_end = self._at_end(link, read_ends)
            if isinstance(at_end, spark_sql.DataFrame):
                older[column] = at_end
            else:
                always[column] = F.lit(at_end)
        ids = [rows.select(*ID, F.lit(column).alias("seen")) for column, rows in older.items()]
        seen = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), [*late, *ids])

        def is_of(column: str) -> Column:
            return F.col("seen") == column

        grouped = seen.groupBy(*ID).agg(
            *(F.max(F.when(is_of(f"row {n}"), F.col("row"))).alias(f"row {n}") for n in self._names),
            *(F.count_if(is_of(f"row {n}")).alias(f"copies {n}") for n in self._names),
            *(F.max(is_of(column)).alias(column) for column in older),
        )
        return grouped.withColumns(always).join(F.broadcast(self._ledger_frame(ledgers)), list(ID[:2]), "left")

    def _at_end(self, link: Link, read: bool) -> DataFrame | bool:
        """The source's rows at the link's end. True: all there are now, or nobody can know; False: there is no end.

        What nobody can know is taken as replicated: it is reported as missing, with a note, and never passed over.
        """
        end, source = self._ends.get(link.name), self._logs.get(link.source)
        if end is None or end.version is None or source is None:
            return False
        if end.table_id != source.table.table_id():
            why = f"{link.source}'s log was dropped and created again"
        elif end.version > source.late:
            why = f"{link.source}'s log ends at version {source.late}: an older copy was put back"
        elif end.version == source.late:
            return True
        elif not read:
            why = f"files of that or another link's end are gone from {link.source}'s log"
        else:
            try:
                return source.table.read(end.version).select(*ID)
            except spark_errors.AnalysisException as error:
                why = f"that version cannot be read any more: {str(error).splitlines()[0]}"
        self.notes.append(
            f"{self._topic}: {link.name} ends at version {end.version} of its source, but {why}. "
            "All that the target lacks is counted as missing, though some may be in flight."
        )
        return True

    def _count(self, rows: DataFrame) -> _Counts:
        """One job: all checks over all ids."""
        checks = list(self._expected.checks())
        message = F.struct(*ID)
        nothing = F.when(F.lit(False), message)  # most rows only say that all is well, and are never shown
        hits = (
            F.when(check.holds, F.struct(F.lit(i).alias("check"), (message if check.category else nothing).alias("id")))
            for i, check in enumerate(checks)
        )
        counted = (
            rows.select(F.inline(F.array_compact(F.array(*hits))))
            .groupBy("check")
            .agg(F.count(F.lit(1)).alias("count"), _least(rows.sparkSession.version).alias("examples"))
        )
        return {
            (checks[row["check"]].where, checks[row["check"]].category): (row["count"], _texts(row["examples"] or ()))
            for row in counted.collect()
        }


def unaccepted(promises: Iterable[Promise], table_id: str, horizon_us: int | None, links: Collection[_Stands]) -> list[Promise]:
    """The promises that a log with this id has to keep, but for those that every link out of its cluster has passed. `links`: how these
    stand."""
    return [promise for promise in due(promises, table_id, None, None, horizon_us) if not passed(promise, links)]


def standings(source: str, topic: Topic, links: Iterable[Link], ends: Ends) -> list[_Stands]:
    """Cursors and floors of the links out of a cluster, by their rows."""
    found: list[_Stands] = []
    for link in links:
        if link.source == source:
            end, cursor = ends.get(key(link, topic)), None
            if end is not None and end.table_id is not None and end.version is not None:
                cursor = CommitName(end.table_id, end.version, None)
            found.append((cursor, None if end is None else end.floors))
    return found


def _texts(ids: Iterable[Row]) -> tuple[str, ...]:
    return tuple(":".join(map(str, one)) for one in ids)
