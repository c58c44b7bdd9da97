"""What a producer may hand in: which columns a DataFrame must have, and which rows are refused and why. Columns only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from geo.errors import UsageError
from geo.faults import SPARK_ERRORS
from geo.log.topic_log import user_columns
from geo.names import Topic
from geo.text import first_line, show
from schemas import ENVELOPE
from schemas.topic_log import MESSAGE_INPUT

MAX_PAYLOAD_BYTES = 5 * 1024 * 1024
"""As Pulsar's maxMessageSize. A larger payload belongs in a file whose name is published."""

MAX_HEADER_BYTES = 1024 * 1024
"""Key and properties together, as text. They are read by every consumer and link; a megabyte of them is a payload."""

ERROR = "_geo_error"
"""Column of a reason not to publish a row; NULL for a good one."""

_TYPES = {c.name: c.type.lower().replace(" ", "") for c in ENVELOPE if c.name in MESSAGE_INPUT}
_OURS = {c.name for c in ENVELOPE} - set(MESSAGE_INPUT)


def new_topic_columns(frame: DataFrame, dropped: Collection[str]) -> list[StructField]:
    """The user's own columns a topic gets when `frame` is the first published to it; none: a bytes topic.

    Columns that only give the order (`dropped`) make a topic typed only if there is no payload.
    """
    extra = [f for f in frame.schema if f.name not in _TYPES and f.name not in _OURS and not f.name.startswith("_geo_")]
    only_order = all(f.name in dropped for f in extra)
    return [] if only_order and "payload" in frame.columns else extra


def own_columns(ddl: str) -> list[StructField]:
    """A typed topic's own columns from SQL: `amount DECIMAL(10,2), currency STRING`. Raises UsageError."""
    wanted = f"columns {show(ddl)} are not like 'amount DECIMAL(10,2), currency STRING'"
    try:
        parsed = StructType.fromDDL(ddl)
    except SPARK_ERRORS as error:
        raise UsageError(f"{wanted}: {first_line(error)}") from None
    if not isinstance(parsed, StructType):
        raise UsageError(wanted)
    columns = list(parsed)
    names = [column.name.lower() for column in columns]
    if len(set(names)) < len(names) or any(set(name) & set(" ,;{}()\n\t=") for name in names):
        raise UsageError(f"{wanted}: names must differ, and have no space and none of , ; {{ }} ( ) =")
    if taken := [c.name for c in columns if c.name.lower() in _TYPES or c.name.lower() in _OURS or c.name.startswith("_geo_")]:
        raise UsageError(
            f"columns {', '.join(taken)} are of the envelope that every message has; leave them out or choose other names."
        )
    return columns


def check_columns(frame: DataFrame, columns: StructType, dropped: Collection[str], topic: Topic) -> None:
    """Raises UsageError naming every column of `frame` that the topic cannot take, and why."""
    own = {field.name: field.dataType.simpleString() for field in user_columns(columns)}
    findings = []
    for field in frame.schema:
        name, kind = field.name, field.dataType.simpleString()
        if name.startswith("_geo_") or (name in dropped and name not in own and name not in _TYPES):
            continue
        if name in _OURS:
            findings.append(f"column {name!r} is filled by delta-geo; rename yours")
        elif name in _TYPES and kind != _TYPES[name] and kind != "void":
            findings.append(f"column {name!r} is {kind}, the envelope's is {_TYPES[name]}; cast it or rename yours")
        elif name not in _TYPES and name not in own:
            kinds = f"has the columns {', '.join(own)}" if own else "is a bytes topic (key, payload, properties, …)"
            findings.append(f"column {name!r} is not in the topic, which {kinds}; drop it or publish to another topic")
        elif name in own and kind != own[name]:
            findings.append(f"column {name!r} is {kind}, the topic's is {own[name]}; cast it")
    if findings:
        raise UsageError(f"{topic}: nothing was published:\n" + "\n".join(f"- {finding}" for finding in findings))


def prepared(given: Collection[str], columns: StructType, cluster: str) -> dict[str, Column]:
    """Every column the log takes from the producer, made of the columns that are `given`; what is not given is NULL.

    `replicate_to` is sorted, without repeats and without the own cluster, so that equal aims share a ledger (L4, L5).
    """
    own = {f.name: F.lit(None).cast(f.dataType) for f in user_columns(columns) if f.name not in given}
    envelope = {name: (F.col(name) if name in given else F.lit(None)).cast(kind) for name, kind in _TYPES.items()}
    to = F.array_sort(F.array_remove(F.array_distinct(envelope["replicate_to"]), cluster))
    return {**own, **envelope, "replicate_to": to}


def row_error(cluster: str, routes: Mapping[str, tuple[str, ...] | None]) -> Column:
    """Why a prepared row is refused, or NULL: payload or header too large, or a `replicate_to` that cannot be reached.

    `routes` are the hubs on the way from `cluster` to each other one (`Config.hubs`).
    """
    to = F.col("replicate_to")
    reachable = [name for name, hubs in routes.items() if hubs is not None]
    unknown = F.array_except(to, F.array(*(F.lit(name) for name in reachable)).cast("array<string>"))
    header = header_bytes("key", F.col("properties"))
    checks = [
        (
            F.octet_length("payload") > MAX_PAYLOAD_BYTES,
            F.format_string(f"payload has %d bytes, the limit is {MAX_PAYLOAD_BYTES}", F.octet_length("payload")),
        ),
        (
            header > MAX_HEADER_BYTES,
            F.format_string(f"key and properties have %d bytes, the limit is {MAX_HEADER_BYTES}", header),
        ),
        (
            F.exists(to, lambda name: name.isNull()),
            F.lit("replicate_to has a null in it; name clusters, or leave it out for all"),
        ),
        (
            F.size(unknown) > 0,
            F.concat(
                F.lit("replicate_to names "),
                F.array_join(unknown, ", "),
                F.lit(f": from {cluster} this topic reaches {', '.join(reachable) or 'no other cluster'}"),
            ),
        ),
    ]
    for name, hubs in routes.items():
        for hub in hubs or ():
            checks.append(
                (
                    F.array_contains(to, name) & ~F.array_contains(to, hub),
                    F.lit(f"replicate_to names {name} without {hub}, through which it is reached; name both"),
                )
            )
    return F.coalesce(*(F.when(bad, reason) for bad, reason in checks))


def header_bytes(key: str, properties: Column) -> Column:
    """Bytes of a key and properties, of which a message may have MAX_HEADER_BYTES."""
    return F.coalesce(F.octet_length(key), F.lit(0)) + F.coalesce(F.octet_length(F.to_json(properties)), F.lit(0))
