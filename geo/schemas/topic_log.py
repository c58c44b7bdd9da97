"""The topic log: one Delta table per topic and cluster, to which messages are only appended (design section 4)."""

from __future__ import annotations

from geo.schemas.table import Column, TableSchema, duration_s

ENVELOPE = (
    Column("origin", "STRING", "cluster in which the message was first written", nullable=False),
    Column("ledger_id", "BIGINT", "one writer's unbroken sequence in the origin", nullable=False),
    Column("entry_id", "BIGINT", "place in the ledger: 0, 1, 2, … without holes", nullable=False),
    Column("publish_time", "TIMESTAMP", "when it was published; never decreases within a ledger", nullable=False),
    Column("event_time", "TIMESTAMP", "the producer's own time"),
    Column("producer", "STRING", "name of the producer"),
    Column("key", "STRING", "routing or compaction key"),
    Column("properties", "MAP<STRING, STRING>", "the producer's own key-value pairs"),
    Column("replicate_to", "ARRAY<STRING>", "NULL: all clusters; []: this one only; else the clusters named"),
    Column("payload", "BINARY", "the message's bytes; never decoded"),
    Column("marker", "STRING", "kind of a protocol message; NULL for a message"),
    Column("publish_date", "DATE", "UTC date of publish_time; partition of expiry", nullable=False),
)
"""Columns of every topic log. A typed topic has the user's own columns after these."""

MESSAGE_INPUT = ("key", "payload", "properties", "replicate_to", "event_time")
"""Envelope columns a producer may give; all others are ours to fill."""

RETENTION_PROPERTIES = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
"""Properties that keep what a link needs that was away: the commits since, and the files they name."""

DELTAS_OWN = dict(zip(RETENTION_PROPERTIES, ("interval 30 days", "interval 1 week"), strict=True))
"""Delta's own values in a log without such a property."""


def retention_days(text: str | None) -> float | None:
    """The days of such a property's value; None for one that is not there or in other words than numbers of one unit."""
    seconds = duration_s(text or "")
    return None if seconds is None else seconds / 86_400


TOPIC_LOG = TableSchema(
    kind="topic-log",
    version=2,
    least_version=2,
    columns=ENVELOPE,
    partitioned_by=("publish_date",),
    properties={
        # Free for inserts, and it is how a marker's commit version is read later.
        "delta.enableChangeDataFeed": "true",
        # Ids and times: what reconcile, resume and verify look rows up by; and the marker, so that the log says how many rows are messages.
        # Payload statistics would cost and say nothing.
        "delta.dataSkippingStatsColumns": "origin,ledger_id,entry_id,publish_time,event_time,marker",
        # Longer than the longest outage a link shall survive without a reconcile; both must be raised together.
        "delta.logRetentionDuration": "interval 30 days",
        "delta.deletedFileRetentionDuration": "interval 30 days",
        # A checkpoint is written inside the commit that is due; every 100th keeps it out of the 95th percentile.
        "delta.checkpointInterval": "100",
        # Files stay readable by every engine (delta-rs too), and a DELETE is seen for what it is.
        "delta.enableDeletionVectors": "false",
    },
)
