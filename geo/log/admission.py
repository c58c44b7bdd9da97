"""Admission of what a producer hands in: the columns that a DataFrame must have, and the rows that are refused and why. Columns only."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from geo.delta.columns import Growth, folded, goes_with, growth, is_same, sql_type, twins, why_not
from geo.delta.definition import columns_of
from geo.errors import UsageError
from geo.faults import SPARK_ERRORS
from geo.log.topic_log import user_columns
from geo.names import Topic
from geo.schemas import ENVELOPE, TOPIC_LOG
from geo.schemas.topic_log import MESSAGE_INPUT
from geo.sql_text import identifier, literal
from geo.text import first_line, show

MAX_PAYLOAD_BYTES = 5 * 1024 * 1024
"""Largest payload, as Pulsar's maxMessageSize. A larger one belongs in a file whose name is published."""

MAX_HEADER_BYTES = 1024 * 1024
"""Key and properties together, as text. They are read by every consumer and link; a megabyte of them is a payload."""

ERROR = "_geo_error"
"""Column of a reason not to publish a row; NULL for a good one."""

_NULL_AIM = "replicate_to has a null in it; name clusters, or leave it out for all"

_GROW = "let the topic grow (schema='grow', `geo topics set --add-columns`)"

_KINDS = {field.name: field.dataType for field in columns_of(TOPIC_LOG) if field.name in MESSAGE_INPUT}
_TYPES = {name: kind.simpleString() for name, kind in _KINDS.items()}
_OURS = {c.name for c in ENVELOPE} - set(MESSAGE_INPUT)
_ENVELOPE = {folded(c.name) for c in ENVELOPE}


def as_named(given: StructType, columns: Iterable[str]) -> StructType:
    """Given columns by the names that a log has for them: Delta does not tell case apart."""
    there = {folded(name): name for name in columns}
    return StructType([StructField(there.get(folded(one.name), one.name), one.dataType) for one in given])


def new_topic_columns(given: StructType, dropped: Collection[str], topic: Topic) -> list[StructField]:
    """The user's own columns a topic gets when rows with `given` columns are the first published to it; none: a bytes topic.

    Columns that only give the order (`dropped`) make a topic typed only if there is no payload. Raises UsageError for those that no log can have.
    """
    extra = [f for f in given if f.name not in _TYPES and f.name not in _OURS and not is_internal(f.name)]
    if all(f.name in dropped for f in extra) and "payload" in given.names:
        return []
    _refuse(topic, why_not(extra))
    return extra


def _refuse(topic: Topic, findings: Sequence[str]) -> None:
    if findings:
        raise UsageError(f"{topic}: nothing was published:\n" + "\n".join(f"- {finding}" for finding in findings))


def is_internal(name: str) -> bool:
    """True for a column of this program's own plans, which is in no log."""
    return name.lower().startswith("_geo_")


def refuse_internal(names: Iterable[str], topic: Topic) -> None:
    """Raises UsageError for columns of a user's that would be taken for this program's own."""
    _refuse(
        topic,
        [f"column {show(name)} begins as those of delta-geo's own plans do; rename it" for name in names if is_internal(name)],
    )


def own_columns(ddl: str, start: Callable[[], object]) -> list[StructField]:
    """A typed topic's own columns from SQL: `amount DECIMAL(10,2), currency STRING`. Spark, which `start` starts, reads what has other than
    plain names and types. Raises UsageError."""
    wanted = f"columns {show(ddl)} are not like 'amount DECIMAL(10,2), currency STRING'"
    if (columns := _plain_columns(ddl)) is None:
        if not re.search(r"\w[\s:`]+\w", ddl):  # no name with a type
            raise UsageError(wanted)
        start()
        try:
            parsed = StructType.fromDDL(ddl)
        except SPARK_ERRORS as error:
            raise UsageError(f"{wanted}: {first_line(error)}") from None
        if not isinstance(parsed, StructType):
            raise UsageError(wanted)
        columns = list(parsed)
    if findings := [*why_not(columns), *filter(None, map(_why_not_own, columns))]:
        raise UsageError(f"{wanted}: {'; '.join(findings)}.")
    return columns


_PLAIN: Mapping[str, type[DataType]] = {
    "BOOLEAN": BooleanType, "TINYINT": ByteType, "SMALLINT": ShortType, "INT": IntegerType, "INTEGER": IntegerType, "BIGINT": LongType,
    "FLOAT": FloatType, "DOUBLE": DoubleType, "STRING": StringType, "BINARY": BinaryType, "DATE": DateType,
}  # fmt: skip
"""Types that mean one thing in SQL, whatever the session says."""

_DECIMAL = re.compile(r"DECIMAL\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")


def _plain_columns(ddl: str) -> list[StructField] | None:
    """Columns as Spark would read them, of plain names and types; None of any others."""
    columns = []
    for one in re.split(r",(?![^(]*\))", ddl):
        name, _, kind = one.strip().partition(" ")
        kind = kind.strip().upper()
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is None:
            return None
        if (decimal := _DECIMAL.fullmatch(kind)) is not None and int(decimal[2]) <= int(decimal[1]) <= 38 and int(decimal[1]):
            columns.append(StructField(name, DecimalType(int(decimal[1]), int(decimal[2]))))
        elif kind in _PLAIN:
            columns.append(StructField(name, _PLAIN[kind]()))
        else:
            return None
    return columns


def _why_not_own(column: StructField) -> str | None:
    """Tells why a column cannot be a user's own; None: it can."""
    if is_internal(column.name):
        return f"column {show(column.name)} begins as those of delta-geo's own plans do; rename it"
    if folded(column.name) in _ENVELOPE:
        return f"column {show(column.name)} is of the envelope that every message has; leave it out or rename it"
    return None


def growth_of(given: StructType, columns: StructType, dropped: Collection[str], topic: Topic, *, grow: bool) -> Growth:
    """Return what the log's `columns` need so that rows with `given` columns can be published. `given` has the log's names (`as_named`). Nothing is
    needed unless the log may `grow`. Raises UsageError naming every given column that the topic cannot take, and why."""
    own = {field.name: field for field in user_columns(columns)}
    findings, wanted = [], []
    for field, twin in zip(given, twins(given.names), strict=True):
        name, kind = field.name, field.dataType
        if is_internal(name) or (name in dropped and name not in own and name not in _TYPES):
            continue
        if twin is not None:
            findings.append(f"column {name!r} is given twice, or with another case; drop one of them")
        elif name in _OURS:
            findings.append(f"column {name!r} is filled by delta-geo; rename yours")
        elif name in _TYPES:
            if kind.simpleString() not in (_TYPES[name], "void"):
                findings.append(
                    f"column {name!r} is {kind.simpleString()}, the envelope's is {_TYPES[name]}; cast it or rename yours"
                )
        elif name not in own and not (grow and own):
            kinds = f"has the columns {', '.join(own)}" if own else "is a bytes topic (key, payload, properties, …)"
            more = f"; drop it, {_GROW}" if own else "; drop it"
            findings.append(f"column {name!r} is not in the topic, which {kinds}{more} or publish to another topic")
        elif name in own and not grow and not goes_with(kind, own[name].dataType):
            more = f", or {_GROW}" if growth(StructType([own[name]]), [field]).widened else ""
            findings.append(
                f"column {name!r} is {kind.simpleString()}, the topic's is {own[name].dataType.simpleString()}; cast it{more}"
            )
        else:
            wanted.append(field)
    found = growth(columns, wanted)
    findings += why_not(found.added)
    findings += [f"{clash.told('here', 'in the topic')}; cast it or rename yours" for clash in found.clashes]
    _refuse(topic, findings)
    return found


def prepared(given: StructType, columns: StructType, cluster: str) -> dict[str, str]:
    """Every column the log takes from the producer, as SQL over the columns that are `given`; what is not given is NULL.

    `replicate_to` is sorted, without repeats and without the own cluster, so that equal aims share a ledger (L4, L5).
    """
    there = {field.name: field.dataType for field in given}
    wanted = {**{f.name: f.dataType for f in user_columns(columns)}, **_KINDS}
    found = {
        name: f"CAST({identifier(name) if name in there else 'NULL'} AS {sql_type(kind)})"
        for name, kind in wanted.items()
        if name not in there or not is_same(there[name], kind)
    }
    if "replicate_to" in there:
        aims = found.get("replicate_to", "replicate_to")
        found["replicate_to"] = f"array_sort(array_remove(array_distinct({aims}), {literal(cluster)}))"
    return found


@dataclass(frozen=True, slots=True)
class Routes:
    """The ways from `cluster` to each other cluster: the hubs on it (`Config.hubs`), None where there is none."""

    cluster: str
    hubs: Mapping[str, tuple[str, ...] | None]

    @property
    def reachable(self) -> list[str]:
        return [name for name, hubs in self.hubs.items() if hubs is not None]

    @property
    def from_here(self) -> str:
        """The end of what is said of a cluster that is not reached."""
        return f": from {self.cluster} this topic reaches {', '.join(self.reachable) or 'no other cluster'}"

    @property
    def needed(self) -> list[tuple[str, str, str]]:
        """A cluster, a hub on the way to it, and what is said if only the first is named."""
        return [
            (name, hub, f"replicate_to names {name} without {hub}, through which it is reached; name both")
            for name, hubs in self.hubs.items()
            for hub in hubs or ()
        ]

    def error(self, aims: Sequence[str | None]) -> str | None:
        """Tells why a prepared `replicate_to` is refused, or None; as `row_error`."""
        if None in aims:
            return _NULL_AIM
        reachable = set(self.reachable)
        if unknown := [name for name in aims if name is not None and name not in reachable]:
            return f"replicate_to names {', '.join(unknown)}{self.from_here}"
        return next((said for name, hub, said in self.needed if name in aims and hub not in aims), None)


def row_error(given: Collection[str], routes: Routes) -> str:
    """Tells why a prepared row is refused, or NULL, as SQL: payload or header too large, or a `replicate_to` that cannot be reached. Columns that
    are not `given` are NULL."""
    unknown = f"array_except(replicate_to, CAST(array({', '.join(map(literal, routes.reachable))}) AS ARRAY<STRING>))"
    header = header_bytes("key", "properties" if "properties" in given else "NULL")
    checks = [
        (
            f"octet_length(payload) > {MAX_PAYLOAD_BYTES}",
            f"concat('payload has ', octet_length(payload), ' bytes, the limit is {MAX_PAYLOAD_BYTES}')",
        ),
        (
            f"{header} > {MAX_HEADER_BYTES}",
            f"concat('key and properties have ', {header}, ' bytes, the limit is {MAX_HEADER_BYTES}')",
        ),
    ]
    if "replicate_to" in given:
        checks += [
            ("exists(replicate_to, name -> name IS NULL)", literal(_NULL_AIM)),
            (f"size({unknown}) > 0", f"concat('replicate_to names ', array_join({unknown}, ', '), {literal(routes.from_here)})"),
        ]
        for name, hub, said in routes.needed:
            names = f"array_contains(replicate_to, {literal(name)}) AND NOT array_contains(replicate_to, {literal(hub)})"
            checks.append((names, literal(said)))
    return f"coalesce({', '.join(f'IF({bad}, {reason}, NULL)' for bad, reason in checks)})"


def header_bytes(key: str, properties: str) -> str:
    """Bytes of a key and properties, of which a message may have MAX_HEADER_BYTES, as SQL."""
    of_properties = "0" if properties == "NULL" else f"coalesce(octet_length(to_json({properties})), 0)"
    return f"coalesce(octet_length({key}), 0) + {of_properties}"
