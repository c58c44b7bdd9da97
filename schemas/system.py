"""The system tables of a cluster (design section 4).

All are journals: rows are appended, and of one subject the row with the highest `sequence` counts (not the newest time: a
clock may step back). Appends of several writers never conflict, so nobody waits for anybody. In `owners` the sequence is
also the number of a Delta transaction, so that of two takers only one appends.
"""

from schemas.table import Column, TableSchema

# Default 10. A checkpoint is written inside the commit that is due and took 0.8 s; a hundred small commits are read in less.
_JOURNAL = {"delta.checkpointInterval": "100"}

TOPICS = TableSchema(
    kind="topics",
    version=1,
    subject=("topic",),
    properties=_JOURNAL,
    columns=(
        Column("topic", "STRING", "full name, persistent://tenant/namespace/name", nullable=False),
        Column("created_at", "TIMESTAMP", "when this cluster got the topic", nullable=False),
        Column("typed", "BOOLEAN", "has columns of the user beside the envelope", nullable=False),
        Column("policies", "MAP<STRING, STRING>", "policies of this topic here, before those of the configuration; NULL: none"),
        Column("sequence", "BIGINT", "counts the topic's rows here; the newest has the highest", nullable=False),
    ),
)

LEDGERS = TableSchema(
    kind="ledgers",
    version=1,
    subject=("topic", "producer", "source", "replicate_to"),
    properties=_JOURNAL,
    columns=(
        Column("topic", "STRING", "full topic name", nullable=False),
        Column("producer", "STRING", "the one writer", nullable=False),
        Column("ledger_id", "BIGINT", "id of the ledger; unique in this cluster", nullable=False),
        Column("source", "STRING", "partition of the producer's source this ledger is fed from", nullable=False),
        Column("replicate_to", "ARRAY<STRING>", "the same for all entries of the ledger"),
        Column("end", "BIGINT", "last entry known to be committed; -1: opened, still empty", nullable=False),
        Column("source_end", "STRING", "source offset up to which the partition is published; NULL: nothing yet"),
        Column("source_count", "BIGINT", "rows of the source partition published so far", nullable=False),
        Column("publish_time", "TIMESTAMP", "publish_time of the last entry"),
        Column("table_id", "STRING", "Delta id of the topic log", nullable=False),
        Column("table_version", "BIGINT", "version of the topic log up to which this row is exact", nullable=False),
        Column("checkpoint_id", "STRING", "id of the streaming checkpoint whose batch numbers the offsets are, or NULL"),
        Column(
            "sequence", "BIGINT", "counts the producer's rows here; the newest row of a ledger has the highest", nullable=False
        ),
        Column("recorded_at", "TIMESTAMP", "when this row was written", nullable=False),
    ),
)

OWNERS = TableSchema(
    kind="owners",
    version=1,
    subject=("runner",),
    properties=_JOURNAL,
    columns=(
        Column("runner", "STRING", "link or producer and its topic", nullable=False),
        Column("generation", "BIGINT", "raised by each new owner; the fence", nullable=False),
        Column("token", "STRING", "drawn by the owner to recognise its own row", nullable=False),
        Column("holder", "STRING", "JSON: host, process ids, start", nullable=False),
        Column("state", "STRING", "owned; a second row of the generation says released after a clean stop", nullable=False),
        Column(
            "sequence",
            "BIGINT",
            "even: the number of a claim among all of this table; odd, the next: its release",
            nullable=False,
        ),
        Column("since", "TIMESTAMP", "when the row was written", nullable=False),
    ),
)

LINKS = TableSchema(
    kind="links",
    version=1,
    subject=("source", "topic"),
    properties=_JOURNAL,
    columns=(
        Column("source", "STRING", "cluster read from", nullable=False),
        Column("topic", "STRING", "full topic name", nullable=False),
        Column("state", "STRING", "RUNNING, STOPPED, DELAYED or FAILED", nullable=False),
        Column("reason", "STRING", "why it is not running, with the range and the resolving verb"),
        Column("generation", "BIGINT", "owner generation that wrote this row", nullable=False),
        Column("source_table_id", "STRING", "Delta id of the source's topic log", nullable=False),
        Column("source_version", "BIGINT", "all versions up to this one are in the target", nullable=False),
        Column("target_table_id", "STRING", "Delta id of the target's topic log", nullable=False),
        Column("target_version", "BIGINT", "a version of the target that holds all of it", nullable=False),
        Column("witness", "STRING", "newest message replicated, `date/origin:ledger:entry`: must be in both logs"),
        Column("checkpoint", "STRING", "name of the streaming checkpoint in use; NULL: go on from source_version"),
        Column("floors", "MAP<STRING, BIGINT>", "start: latest — `origin:ledger` to the first entry wanted; NULL: all"),
        Column("sequence", "BIGINT", "counts the link's rows of this topic; the newest has the highest", nullable=False),
        Column("updated_at", "TIMESTAMP", "when this row was written", nullable=False),
    ),
)

CURSORS = TableSchema(
    kind="cursors",
    version=1,
    subject=("topic", "subscription"),
    properties=_JOURNAL,
    columns=(
        Column("topic", "STRING", "full topic name", nullable=False),
        Column("subscription", "STRING", "the named consumer group", nullable=False),
        Column("epoch", "BIGINT", "counts resets and deletions", nullable=False),
        Column("epoch_cluster", "STRING", "the cluster that made the last of them; empty: none yet", nullable=False),
        Column("deleted", "BOOLEAN", "unsubscribed for good, until somebody creates it again", nullable=False),
        Column("acknowledged", "BIGINT", "how many messages are acknowledged in this epoch", nullable=False),
        Column("mark_delete", "MAP<STRING, BIGINT>", "`origin:ledger` to the entry up to which all are acknowledged"),
        Column("ranges", "BIGINT", "how many ranges of entries the acknowledged messages are", nullable=False),
        Column("state", "BINARY", "all of it, as records of __acks have it (geo.subscription.record)", nullable=False),
        Column("folded", "MAP<STRING, BIGINT>", "`origin:ledger` of __acks to the last record that is in it", nullable=False),
        Column("refused", "MAP<STRING, BIGINT>", "records that changed nothing, by reason", nullable=False),
        Column("compacted_at", "TIMESTAMP", "when this cluster last published all of it in compact records; NULL: never"),
        Column("sequence", "BIGINT", "counts the subscription's rows here; the newest has the highest", nullable=False),
        Column("updated_at", "TIMESTAMP", "when this row was written", nullable=False),
    ),
)
