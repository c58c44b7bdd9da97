"""Verify: every cluster's log of a topic against every other, by message id and content, under the routing rule.

An auditor shares no code with what it audits: nothing that publishes, routes, replicates or reconciles is imported.
The rule is stated once more, from design section 5, and everything is told from the tables alone: topic logs,
`system/topics` and `system/links`. Only reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from geo.config import Config, Link
from geo.errors import UsageError
from geo.log.frames import rows_frame
from geo.log.names import ALL_TOPICS, Topic, check_topic_glob, topic_glob_matches
from geo.log.table import Table
from geo.log.tables import ClusterTables
from geo.log.topics import registered_topics
from geo.ops.verify_result import Category, ClusterResult, Finding, LinkResult, VerifyReport
from schemas import LINKS

ID = ("origin", "ledger_id", "entry_id")

CROSSING_MARKERS = ("SNAPSHOT_REQUEST", "SNAPSHOT_RESPONSE", "SUBSCRIPTION_UPDATE")
"""Markers meant for other clusters. They cross by stream and never by reconcile, so a lack of one is no fault."""

EXAMPLES = 5
"""Ids shown per finding: enough to see whether it is one ledger or all, and to look one up."""

AT_ONCE = 4
"""Logs and topics looked at side by side: most of a small topic's time is planning, which leaves the cores idle."""

_Place = tuple[Topic, str]
"""A topic in a cluster."""


@dataclass(frozen=True, slots=True)
class _End:
    """The newest row of a link and topic in `system/links`: up to `version` of the table `table_id` all has crossed."""

    state: str
    reason: str | None
    table_id: str
    version: int
    floors: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Log:
    """One cluster's log of the topic and its two pins. `early` is None if the log came into being between them."""

    table: Table
    early: int | None
    late: int


_Ends = dict[tuple[str, str, str], _End]
"""By target, source and topic."""


def _read_ends(clusters: Mapping[str, ClusterTables]) -> _Ends:
    ends: _Ends = {}
    for target, tables in clusters.items():
        rows = tables.journal(LINKS).rows()
        if rows is not None:
            end = F.struct("state", "reason", "source_table_id", "source_version", F.coalesce("floors", F.create_map()))
            newest = rows.groupBy("source", "topic").agg(F.max_by(end, "sequence").alias("end"))
            ends |= {(target, row["source"], row["topic"]): _End(*row["end"]) for row in newest.collect()}
    return ends


def _key(link: Link, topic: Topic) -> tuple[str, str, str]:
    return link.target, link.source, str(topic)


def verify(spark: SparkSession, config: Config, topics: str = ALL_TOPICS) -> VerifyReport:
    """Compare all clusters' logs of the topics that match the glob. Raises UsageError if there is none.

    It may run beside live producers and links, and reports no fault that is not there. Commits go on while it reads, so
    each claim is made between versions whose order proves it. All clusters go through each step before the next begins:

    1. read the end E of every link: all of the source up to E *was* in the target by then;
    2. pin every log: the early pin;
    3. pin every log again: the late pin;
    4. read the links again, for their floors, and the clock.

    - missing compares E with the target's late pin. E was recorded after what it vouches for was committed.
    - unexpected compares the target's early pin with the source's and the origin's late pin. A row was in these before
      any link could copy it. Were there one pin per log, this could be asked in one direction of a two-way link only.
    - duplicates, holes and differences are claims about single versions, as rows never change: they need no order.
    - floors are fixed when a link starts and recorded before its first row is appended, so those read last hold for all
      rows seen; an end must be read first. A link that starts between steps 1 and 4 has floors and no end: in flight.
    - whatever had expired when a link or an expiry looked at it has expired by the clock of step 4. Clocks that differ
      by more than these steps take can misjudge messages that are just about to expire, and no others.

    Cost per topic: one scan of the ids of each log and one of its rows, plus the ids at the older pins if the log has
    moved. Rows are shuffled as digests; only counts, examples and the ends of ledgers are collected.
    """
    check_topic_glob(topics)
    clusters = {name: ClusterTables(spark, cluster) for name, cluster in config.clusters.items()}
    registered = {name: {found.topic for found in registered_topics(tables)} for name, tables in clusters.items()}
    known = sorted(set().union(*registered.values()))
    matching = [topic for topic in known if topic_glob_matches(topics, topic)]
    if not matching:
        there = ", ".join(map(str, known[:20])) or "none"
        raise UsageError(f"no topic matches {topics}; the topics of {', '.join(clusters)} are: {there}")

    # A log whose registry row is not written yet counts too.
    logs = {(topic, name): tables.log(topic) for topic in matching for name, tables in clusters.items()}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends = _read_ends(clusters)  # step 1
        early = _pin(pool, logs)  # step 2
        late = _pin(pool, logs)  # step 3
        floors, now_us = _read_ends(clusters), time.time_ns() // 1000  # step 4

        def compare(topic: Topic) -> _Comparison:
            pinned = {
                name: _Log(logs[topic, name], early.get((topic, name)), late[topic, name])
                for name in clusters
                if (topic, name) in late
            }
            ttl_s = config.policy(topic).message_ttl_s
            expired_before_us = None if ttl_s is None else now_us - ttl_s * 1_000_000
            links = config.links_of(topic)
            comparison = _Comparison(topic, pinned, links, ends, floors, expired_before_us)
            comparison.notes += _notes(topic, registered, pinned, links, floors)
            comparison.run()
            return comparison

        compared = list(pool.map(compare, matching))
    return VerifyReport(
        tuple(map(str, matching)),
        tuple(result for comparison in compared for result in comparison.links()),
        tuple(result for comparison in compared for result in comparison.clusters()),
        tuple(note for comparison in compared for note in comparison.notes),
    )


def _pin(pool: ThreadPoolExecutor, logs: Mapping[_Place, Table]) -> dict[_Place, int]:
    """The newest version of every log that is there. Returns when all are known."""
    versions = pool.map(lambda table: table.latest_version() if table.exists() else None, logs.values())
    return {place: version for place, version in zip(logs, versions, strict=True) if version is not None}


def _notes(
    topic: Topic, registered: Mapping[str, set[Topic]], logs: Mapping[str, _Log], links: Sequence[Link], ends: _Ends
) -> Iterable[str]:
    """What a person should know beside the counts."""
    for name in registered:
        if topic in registered[name] and name not in logs:
            yield f"{topic}: is registered in {name}, where it has no log"
        if topic in registered[name] and len(registered) > 1 and all(link.source != name for link in links):
            yield f"{topic}: no link carries it out of {name}"
    for target, source, of in sorted(ends):
        if of == str(topic) and all((link.target, link.source) != (target, source) for link in links):
            yield f"{topic}: {source}->{target} replicated it once and no longer does: what it brought to {target} is not compared"
    for link in links:
        end = ends.get(_key(link, topic))
        if end is not None and end.state in ("FAILED", "DELAYED"):
            yield f"{topic}: {link.link_name} is {end.state}: {end.reason or 'no reason recorded'}"


# -- the rule, in columns ----------------------------------------------------------------------------------------------


def _told(log: _Log, expired_before_us: int | None) -> DataFrame:
    """A log at its late pin, with what has to be known of each row.

    Columns: the id, digest BINARY, and of the row alone: is_message, may_cross (marker rules) and has_expired BOOLEAN,
    replicate_to ARRAY<STRING>. No BOOLEAN is NULL.
    """
    rows = log.table.read(log.late)
    has_expired = F.lit(False)
    if expired_before_us is not None:
        horizon = F.timestamp_micros(F.lit(expired_before_us).cast("long"))
        has_expired = _true(F.col("publish_time") < horizon)
    return rows.select(
        *ID,
        _digest(rows.schema).alias("digest"),
        F.col("marker").isNull().alias("is_message"),
        (F.col("marker").isNull() | _true(F.col("marker").isin(*CROSSING_MARKERS))).alias("may_cross"),
        has_expired.alias("has_expired"),
        "replicate_to",
    )


def _addressed(replicate_to: Column, target: str) -> Column:
    """NULL is every cluster, an empty list none."""
    return replicate_to.isNull() | _true(F.array_contains(replicate_to, target))


def _from_floor(floors: Mapping[str, int]) -> Column:
    """Whether an entry is at or above its ledger's floor. A ledger without one begins at 0."""
    if not floors:
        return F.lit(True)
    # JSON, so that the plan holds one constant and not one expression for each of thousands of ledgers.
    floor = F.from_json(F.lit(json.dumps(dict(floors))), "map<string, bigint>")
    ledger = F.concat_ws(":", "origin", F.col("ledger_id").cast("string"))
    return F.col("entry_id") >= F.coalesce(F.try_element_at(floor, ledger), F.lit(0))


def _digest(schema: T.StructType) -> Column:
    """SHA-256 over all columns of a row by name, so that their order in the table does not matter.

    A column that a log does not have is NULL: what a link would have to fill it with.
    """
    columns = [_canonical(F.col(f"`{c.name}`"), c.dataType).alias(c.name) for c in sorted(schema, key=lambda c: c.name)]
    return F.unhex(F.sha2(F.to_json(F.struct(*columns)), 256))


def _canonical(value: Column, kind: T.DataType) -> Column:
    """A value as JSON tells it exactly: equal JSON is an equal value, and NULL is left out. Maps have no order."""
    if isinstance(kind, T.StructType):
        fields = sorted(kind, key=lambda field: field.name)
        parts = (_canonical(value.getField(field.name), field.dataType).alias(field.name) for field in fields)
        return F.when(value.isNotNull(), F.struct(*parts))
    if isinstance(kind, T.ArrayType):
        return F.transform(value, lambda item: _canonical(item, kind.elementType))
    if isinstance(kind, T.MapType):
        # As text, because an entry whose value is a map could not be sorted.
        entries = F.transform(
            F.map_entries(value),
            lambda e: F.to_json(
                F.struct(
                    _canonical(e.getField("key"), kind.keyType).alias("key"),
                    _canonical(e.getField("value"), kind.valueType).alias("value"),
                )
            ),
        )
        return F.array_sort(entries)
    if isinstance(kind, (T.StringType, T.BinaryType)):
        # Not the text itself: JSON would replace what is not UTF-8, and a payload would be carried in base64.
        return F.sha2(value.cast("binary"), 256)
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(value)  # a cast to STRING depends on the session's time zone, and is ambiguous in autumn
    return F.to_json(value) if isinstance(kind, T.VariantType) else value.cast("string")


def _true(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


# -- one topic ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Check:
    """What is counted where: rows for which `holds`, side by side. Category None counts what is as it should be."""

    where: str
    category: Category | None
    holds: Column


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
"""How many, and examples, by where and category."""


class _Comparison:
    """One topic in all clusters. Two jobs, ledgers and then ids side by side, and a third if holes are to be shown."""

    def __init__(
        self,
        topic: Topic,
        logs: Mapping[str, _Log],
        links: Sequence[Link],
        ends: _Ends,
        floors: _Ends,
        expired_before_us: int | None,
    ) -> None:
        self._topic, self._logs, self._links = topic, logs, links
        self._ends = {link.link_name: end for link in links if (end := ends.get(_key(link, topic)))}
        self._expires = expired_before_us is not None
        self._rows = {name: _told(log, expired_before_us) for name, log in logs.items()}
        # Also of clusters without a log, into which all is still in flight.
        self._names = sorted({*logs, *(name for link in links for name in (link.source, link.target))})
        self._carried = {n: {o for link in links if link.target == n for o in link.origins} for n in self._names}
        # Clusters whose link is no longer configured: what it brought may stay, and nobody vouches for more.
        self._former = {
            name: {source for target, source, of in ends if (target, of) == (name, str(topic))}
            - {link.source for link in links if link.target == name}
            for name in self._names
        }
        self._floors: dict[str, dict[str, int]] = {name: {} for name in self._names}
        for link in links:
            if end := floors.get(_key(link, topic)):
                # An origin reaches a cluster by one link, so the floors of two links never meet in a ledger.
                self._floors[link.target].update(end.floors)
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
            end = self._ends.get(link.link_name)
            state, version = (end.state, end.version) if end else (None, None)
            compared, findings = self._results(link.link_name)
            yield LinkResult(str(self._topic), link.link_name, state, version, compared, findings)

    def clusters(self) -> Iterable[ClusterResult]:
        for name, log in self._logs.items():
            messages, findings = self._results(name)
            yield ClusterResult(str(self._topic), name, log.late, messages, findings)

    def _results(self, where: str) -> tuple[int, tuple[Finding, ...]]:
        good, _ = self._found.get((where, None), (0, ()))
        return good, tuple(Finding(c, *self._found[where, c]) for c in Category if (where, c) in self._found)

    # -- ledgers -------------------------------------------------------------------------------------------------------

    def _belonging(self, name: str) -> DataFrame:
        """Rows of a log by which its ledgers are judged: its own, and messages that a link should have brought.

        Without those that have expired: they are a prefix of their ledger (publish_time never decreases in it), and an
        expiry may have dropped any part of it.
        """
        carried = F.col("origin").isin(*sorted(self._carried[name]))
        crossed = F.col("is_message") & _addressed(F.col("replicate_to"), name) & _from_floor(self._floors[name])
        return self._rows[name].where(((F.col("origin") == name) | (carried & crossed)) & ~F.col("has_expired"))

    def _ledgers(self) -> list[_Ledger]:
        rows = (self._belonging(name).select(F.lit(name).alias("cluster"), *ID) for name in self._logs)
        ends = reduce(DataFrame.unionByName, rows).groupBy("cluster", "origin", "ledger_id").agg(
            F.min("entry_id").alias("first"),
            F.max("entry_id").alias("last"),
            F.count_distinct("entry_id").alias("entries"),
        )  # fmt: skip
        return [self._ledger(row) for row in ends.collect()]

    def _ledger(self, row: Row) -> _Ledger:
        cluster, origin, ledger_id = row["cluster"], row["origin"], row["ledger_id"]
        # With a TTL whatever is below the first may have expired; what of it has not is told by comparing with a peer.
        base = row["first"] if self._expires else self._floors[cluster].get(f"{origin}:{ledger_id}", 0)
        return _Ledger(cluster, origin, ledger_id, base, row["last"], row["last"] - base + 1 - row["entries"])

    def _add_holes(self, ledgers: Sequence[_Ledger]) -> None:
        """The holes of ledgers, to those already found by comparing."""
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
        due = F.coalesce(F.lag("entry_id").over(Window.partitionBy(*ID[:2]).orderBy("entry_id")) + 1, _at("base", name))
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

        Columns: the id; `row c` (as `_told`; NULL: not in c), `copies c`, `early c` (in c at its early pin), `base c`
        and `last c` (of its ledger) of each cluster c; `end l` (was in the source at the end of link l) of each link l.
        """
        told = ("digest", "is_message", "may_cross", "has_expired", "replicate_to")
        late = [
            rows.select(*ID, F.lit(f"row {name}").alias("seen"), F.struct(*told).alias("row"))
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
            column = f"end {link.link_name}"
            at_end = self._at_end(link, read_ends)
            if isinstance(at_end, DataFrame):
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
        """The source's rows at the link's end. True: all there are now, or it cannot be told; False: there is no end.

        What cannot be told is taken as replicated: it is reported as missing, with a note, and never passed over.
        """
        end, source = self._ends.get(link.link_name), self._logs.get(link.source)
        if end is None or source is None:
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
            except AnalysisException as error:
                why = f"that version cannot be read any more: {str(error).splitlines()[0]}"
        self.notes.append(
            f"{self._topic}: {link.link_name} ends at version {end.version} of its source, but {why}. "
            "All that the target lacks is counted as missing, though some may be in flight."
        )
        return True

    def _checks(self) -> Iterable[_Check]:
        """Everything that is counted, as conditions over `_side_by_side`. This is the rule of design section 5."""
        for name in self._logs:
            here = _at("row", name).isNotNull()
            foreign = ~F.col("origin").isin(name, *sorted(self._former[name]))
            carried = F.col("origin").isin(*sorted(self._carried[name]))
            yield _Check(name, None, here)
            yield _Check(name, Category.DUPLICATES, _at("copies", name) > 1)
            yield _Check(name, Category.UNEXPECTED, here & _at("early", name) & foreign & ~carried)
        for link in self._links:
            yield from self._link_checks(link)

    def _link_checks(self, link: Link) -> Iterable[_Check]:
        name, source, target = link.link_name, _at("row", link.source), _at("row", link.target)
        carried = F.col("origin").isin(*sorted(link.origins))
        both = carried & source.isNotNull() & target.isNotNull()
        yield _Check(name, None, both)
        yield _Check(name, Category.DIFFERENT, both & (source["digest"] != target["digest"]))

        expected = (
            carried
            & source.isNotNull()
            & source["is_message"]
            & _addressed(source["replicate_to"], link.target)
            & _from_floor(self._floors[link.target])
        )
        absent = expected & target.isNull()
        due = absent & ~source["has_expired"]
        newer = due & ~_at("end", name)
        # Within a ledger rows arrive in order, so whatever is below one that arrived is not on its way any more.
        passed = _true(F.col("entry_id") < _at("last", link.target))
        yield _Check(name, Category.EXPIRED, absent & source["has_expired"])
        yield _Check(name, Category.MISSING, due & _at("end", name))
        yield _Check(name, Category.IN_FLIGHT, newer & ~passed)
        # From its base on the ledger itself tells its holes.
        yield _Check(link.target, Category.HOLES, newer & passed & (F.col("entry_id") < _at("base", link.target)))

        origins = (_at("row", o).isNotNull() & (F.col("origin") == o) for o in link.origins if o in self._logs)
        known = reduce(or_, origins, source.isNotNull())
        allowed = target["may_cross"] & _addressed(target["replicate_to"], link.target)
        unknown = ~known & ~target["has_expired"]
        there = carried & target.isNotNull() & _at("early", link.target)
        yield _Check(name, Category.UNEXPECTED, there & (~allowed | unknown))

    def _count(self, rows: DataFrame) -> _Counts:
        """One job: all checks over all ids."""
        checks = list(self._checks())
        message = F.struct(*ID)
        nothing = F.when(F.lit(False), message)  # most rows only say that all is well, and are never shown
        hits = (
            F.when(check.holds, F.struct(F.lit(i).alias("check"), (message if check.category else nothing).alias("id")))
            for i, check in enumerate(checks)
        )
        counted = (
            rows.select(F.inline(F.array_compact(F.array(*hits))))
            .groupBy("check")
            .agg(F.count(F.lit(1)).alias("count"), F.min_by("id", "id", EXAMPLES).alias("examples"))
        )
        return {
            (checks[row["check"]].where, checks[row["check"]].category): (row["count"], _texts(row["examples"] or ()))
            for row in counted.collect()
        }


def _texts(ids: Iterable[Row]) -> tuple[str, ...]:
    return tuple(":".join(map(str, one)) for one in ids)


def _at(what: str, where: str) -> Column:
    return F.col(f"`{what} {where}`")
