"""The system tables of a cluster (design section 4).

All are journals. Rows are appended, and of one subject the row that is last by the schema's `order` counts. (Not the newest time: a clock may step
back.) Appends of several writers never conflict, so nobody waits for anybody. In `owners` the generation is also the number of a Delta transaction,
so that of two takers only one appends.
"""

from geo.schemas.table import Column, TableSchema

_VERSION = 2
"""Nothing of a version below is read (BEFORE_RELEASE says why)."""

_JOURNAL = {
    # Default 10. A checkpoint is written inside the commit that is due and took 0.8 s; a hundred small commits are read in less.
    "delta.checkpointInterval": "100",
    # Nobody reads a journal's past, and every look at it lists its commits.
    "delta.logRetentionDuration": "interval 1 day",
    "delta.deletedFileRetentionDuration": "interval 1 day",
}


def _journal(
    kind: str,
    subject: tuple[str, ...],
    *columns: Column,
    version: int = _VERSION,
    least_version: int = _VERSION,
    order: tuple[str, ...] = ("sequence",),
) -> TableSchema:
    return TableSchema(kind, version, columns, properties=_JOURNAL, subject=subject, order=order, least_version=least_version)


TOPICS = _journal(
    "topics",
    ("topic",),
    Column("topic", "STRING", "full name, persistent://tenant/namespace/name", nullable=False),
    Column("created_at", "TIMESTAMP", "when this cluster got the topic", nullable=False),
    Column("typed", "BOOLEAN", "has columns of the user beside the envelope", nullable=False),
    Column(
        "policies",
        "MAP<STRING, STRING>",
        "policies of this topic here, before the configuration's, or that it was deleted; NULL: none",
    ),
    Column("sequence", "BIGINT", "counts the topic's rows here; the newest has the highest", nullable=False),
)

LEDGERS = _journal(
    "ledgers",
    ("topic", "producer", "source", "replicate_to"),
    Column("topic", "STRING", "full topic name", nullable=False),
    Column("producer", "STRING", "the one writer", nullable=False),
    Column("ledger_id", "BIGINT", "id of the ledger; unique in this cluster", nullable=False),
    Column("source", "STRING", "partition of the producer's source this ledger is fed from", nullable=False),
    Column("replicate_to", "ARRAY<STRING>", "the same for all entries of the ledger"),
    Column("end", "BIGINT", "last entry known to be committed; -1: opened, still empty", nullable=False),
    Column("closed", "STRING", "why nothing more is published to this ledger; NULL: it goes on"),
    Column("uncompared", "ARRAY<STRING>", "clusters that were away when it was opened, and since", nullable=False),
    Column("source_end", "STRING", "source offset up to which the partition is published; NULL: nothing yet"),
    Column("source_count", "BIGINT", "rows of the source partition published so far", nullable=False),
    Column("source_hash", "BIGINT", "XOR of their hashes; 0 where they are never looked at again", nullable=False),
    Column("publish_time", "TIMESTAMP", "publish_time of the last entry; of an empty ledger, when it was opened", nullable=False),
    Column("table_id", "STRING", "Delta id of the topic log", nullable=False),
    Column(
        "table_version",
        "BIGINT",
        "version up to which the producer's newest row is exact: its last commit, or where it began",
        nullable=False,
    ),
    Column("table_commit", "STRING", "id of that commit, which a history that grew again has not"),
    Column("complete", "BOOLEAN", "the producer stopped cleanly: no later commit is its own", nullable=False),
    Column("checkpoint_id", "STRING", "id of the streaming checkpoint whose batch numbers the offsets are, or NULL"),
    Column("generation", "BIGINT", "claim of the owner that wrote this row", nullable=False),
    Column("sequence", "BIGINT", "counts the producer's rows here; of one claim the newest has the highest", nullable=False),
    Column("recorded_at", "TIMESTAMP", "when this row was written", nullable=False),
    # Rows of sources that ended may be in `finished`: a program that does not look there would publish them again. Nor does it read
    # places in files that have a hash and a stamp. Tables of before get the version when the first of either comes.
    version=3,
    order=("generation", "sequence"),
)

FINISHED = _journal(
    "finished",
    ("topic", "producer", "source"),
    Column("topic", "STRING", "full topic name", nullable=False),
    Column("producer", "STRING", "the one writer", nullable=False),
    Column("source", "BINARY", "a source partition that ended: the first 16 bytes of the SHA-256 of its name", nullable=False),
    Column("source_end", "STRING", "source offset up to which it was published, as in `ledgers`", nullable=False),
    Column("source_count", "BIGINT", "rows of it that were published", nullable=False),
    Column("sequence", "BIGINT", "when it was moved here, in microseconds since 1970; the newest counts", nullable=False),
    version=1,
    least_version=1,
)

OWNERS = _journal(
    "owners",
    ("runner",),
    Column("runner", "STRING", "an origin's way into a topic, or a producer and its topic", nullable=False),
    Column("generation", "BIGINT", "number of the claim among all of this table; the fence", nullable=False),
    Column("token", "STRING", "drawn by the claimer: with the generation the name of its fence", nullable=False),
    Column("holder", "STRING", "JSON: host, process ids, start", nullable=False),
    Column("state", "STRING", "owned; a second row of the claim says released after a clean stop", nullable=False),
    Column("sequence", "BIGINT", "0: the claim; 1: its release", nullable=False),
    Column("in_flight", "BOOLEAN", "whether an append of an earlier owner may still land: the next one fences", nullable=False),
    Column("since", "TIMESTAMP", "when the row was written", nullable=False),
    version=3,
    least_version=3,
    order=("generation", "sequence"),
)

PROCESSES = _journal(
    "processes",
    ("process",),
    Column("process", "STRING", "host, process id and start of a process that owns something here", nullable=False),
    Column("holder", "STRING", "the same as JSON, with its JVM", nullable=False),
    Column("renewed_at", "TIMESTAMP", "its last sign of life", nullable=False),
    Column("sequence", "BIGINT", "the same in microseconds; the newest has the highest", nullable=False),
    Column("program", "STRING", "version of delta-geo that it runs; NULL: not told, as by a zip", added=True),
)

LINKS = _journal(
    "links",
    ("source", "topic"),
    Column("source", "STRING", "cluster read from", nullable=False),
    Column("topic", "STRING", "full topic name", nullable=False),
    Column("state", "STRING", "RUNNING, STOPPED, DELAYED, FAILED or PAUSED", nullable=False),
    Column("reason", "STRING", "why it is not running, with the range and the resolving verb"),
    Column("generation", "BIGINT", "claim of the owner that wrote this row", nullable=False),
    Column("origins", "ARRAY<STRING>", "the origins for which the cursor counts", nullable=False),
    Column("source_table_id", "STRING", "the cursor: Delta id of the source's topic log; NULL: the target holds nothing yet"),
    Column("source_version", "BIGINT", "the cursor: all versions of the source up to this one are in the target"),
    Column("source_commit", "STRING", "the cursor: id of that commit, which a history that grew again has not"),
    Column("target_table_id", "STRING", "Delta id of the target's topic log"),
    Column("target_version", "BIGINT", "a version of the target that holds all of it"),
    Column("target_commit", "STRING", "id of that commit"),
    Column(
        "floors",
        "MAP<STRING, BIGINT>",
        "`origin:ledger` to the first entry wanted (start: latest), NULL: all; `geo:lost:origin:ledger` to the last entry accepted as lost",
    ),
    Column("expired", "BIGINT", "messages left out because they had expired, since the link began", nullable=False),
    Column(
        "sequence", "BIGINT", "counts the owner's rows of this topic; of one claim the newest has the highest", nullable=False
    ),
    Column("updated_at", "TIMESTAMP", "when this row was written", nullable=False),
    Column(
        "impossible",
        "BIGINT",
        "rows of the source up to the cursor left out since no producer can have written them; NULL: not counted yet",
        added=True,
    ),
    Column("state_since", "TIMESTAMP", "since when state and reason_code are these; NULL: not known", added=True),
    Column("reason_code", "STRING", "why it is not running, as a code of geo.reasons; NULL: it runs, or not known", added=True),
    Column("impossible_accepted", "BIGINT", "of `impossible` those that a geo reconcile accepted; NULL: none", added=True),
    Column(
        "impossible_since",
        "TIMESTAMP",
        "since when some of `impossible` are not accepted; NULL: none are, or not known",
        added=True,
    ),
    order=("generation", "sequence"),
)

REQUESTS = _journal(
    "requests",
    ("source", "topics", "kind"),
    Column("source", "STRING", "the link is that from this cluster", nullable=False),
    Column("topics", "STRING", "glob of the topics it is asked for, those too that come later", nullable=False),
    Column("kind", "STRING", "what a newer one takes the place of: pause (also of resume), or restart", nullable=False),
    Column("action", "STRING", "pause, resume or restart", nullable=False),
    Column("by", "STRING", "the process that recorded it", nullable=False),
    Column("sequence", "BIGINT", "counts the requests of this cluster; what was asked last counts", nullable=False),
    Column("asked_at", "TIMESTAMP", "when", nullable=False),
)

CURSORS = _journal(
    "cursors",
    ("topic", "subscription"),
    Column("topic", "STRING", "full topic name", nullable=False),
    Column("subscription", "STRING", "the named consumer group", nullable=False),
    Column("epoch", "BIGINT", "counts resets and deletions", nullable=False),
    Column("epoch_cluster", "STRING", "the cluster that made the last of them; empty: none yet", nullable=False),
    Column("deleted", "BOOLEAN", "unsubscribed for good, until somebody creates it again", nullable=False),
    Column("acknowledged", "BIGINT", "how many messages are acknowledged in this epoch", nullable=False),
    Column("mark_delete", "MAP<STRING, BIGINT>", "`origin:ledger` to the entry up to which all are acknowledged"),
    Column("ranges", "BIGINT", "how many ranges of entries the acknowledged messages are", nullable=False),
    Column("state", "BINARY", "all of it, as records of __acks have it (geo.subscription.acks.record)", nullable=False),
    Column("folded", "MAP<STRING, BIGINT>", "`origin:ledger` of __acks to the last record that is in it", nullable=False),
    Column("refused", "MAP<STRING, BIGINT>", "records that changed nothing, by reason", nullable=False),
    Column("compacted_at", "TIMESTAMP", "when this cluster last published all of it in compact records; NULL: never"),
    Column("sequence", "BIGINT", "counts the subscription's rows here; the newest has the highest", nullable=False),
    Column("updated_at", "TIMESTAMP", "when this row was written", nullable=False),
    Column("replicated", "BOOLEAN", "all regions share it; false: it is of this one only; NULL: shared", added=True),
    Column(
        "named_on",
        "MAP<STRING, BIGINT>",
        "`origin:ledger` to the day, since 1970, on which a record last named it; NULL: not known, or the topic has no TTL",
        added=True,
    ),
    order=("sequence", "updated_at"),
)

VERSION_SUBSCRIPTIONS = _journal(
    "version_subscriptions",
    ("topic", "subscription"),
    Column("topic", "STRING", "full topic name", nullable=False),
    Column("subscription", "STRING", "the consumer that only knows versions of this cluster's topic log", nullable=False),
    Column("deleted", "BOOLEAN", "unsubscribed here, until somebody creates it again", nullable=False),
    Column("table_id", "STRING", "Delta id of the topic log whose versions are meant", nullable=False),
    Column("finished", "BIGINT", "it has processed every version up to this one; NULL: nothing, or the checkpoint says it"),
    Column("checkpoint", "STRING", "checkpoint folder of its streaming query, which says how far it is; NULL: people say it"),
    Column("query_id", "STRING", "Spark's id of that query: another one in the folder does not count; NULL: people say it"),
    Column("created_at", "TIMESTAMP", "when it was created: deleted and created again it is another one", nullable=False),
    Column("by", "STRING", "the process that recorded it", nullable=False),
    Column("sequence", "BIGINT", "counts the subscription's rows here; the newest has the highest", nullable=False),
    Column("updated_at", "TIMESTAMP", "when this row was written", nullable=False),
    Column(
        "replicated",
        "BOOLEAN",
        "it is found out where it may go on elsewhere; false: it is of this region only, without markers; NULL: it is found out",
        added=True,
    ),
)

VERSION_STARTS = _journal(
    "version_starts",
    ("topic", "subscription", "cluster"),
    Column("topic", "STRING", "full topic name", nullable=False),
    Column("subscription", "STRING", "the version subscription; empty: of the topic, `waits_for` and `refused`", nullable=False),
    Column("cluster", "STRING", "where a consumer may start", nullable=False),
    Column("start", "BIGINT", "the first version to read of the topic log there; NULL: none is known"),
    Column("snapshot_id", "STRING", "the snapshot that says so"),
    Column("taken_at", "TIMESTAMP", "when that snapshot was begun"),
    Column("sender", "STRING", "the cluster that told it by an update; NULL: found out here"),
    Column("waits_for", "MAP<STRING, STRING>", "the clusters because of which no snapshot is begun, and why; NULL: none"),
    Column("refused", "MAP<STRING, BIGINT>", "markers that changed nothing, by reason; NULL: none"),
    Column("sequence", "BIGINT", "number of the row of system/markers it follows from", nullable=False),
    Column("updated_at", "TIMESTAMP", "when this row was written", nullable=False),
)

MARKERS = _journal(
    "markers",
    ("topic",),
    Column("topic", "STRING", "full topic name", nullable=False),
    Column("seq", "BIGINT", "counts all rows of this table; a topic's rows are heard in its order", nullable=False),
    Column("fact", "STRING", "JSON: what the topic's controller hears (geo.subscription.pip33.controller_rows)", nullable=False),
    Column("table_id", "STRING", "Delta id of the topic log that was looked at", nullable=False),
    Column("read_to", "BIGINT", "all versions of the topic log up to this one were looked at before", nullable=False),
    Column("commit_id", "STRING", "which commit that version is; NULL: it was gone already"),
    Column("moved", "BIGINT", "the newest of these versions that brought a message, as far as is known", nullable=False),
    Column("written_at", "TIMESTAMP", "when this row was written", nullable=False),
    order=("seq",),
)

EVENTS = _journal(
    "events",
    ("id",),
    Column("id", "STRING", "of the row of one subject and kind in one minute, as one process wrote it", nullable=False),
    Column("at", "TIMESTAMP", "when it happened; of several in a minute the last, by its writer's clock", nullable=False),
    Column("cluster", "STRING", "this one", nullable=False),
    Column("kind", "STRING", "what it is about (geo.journal.event_rate)", nullable=False),
    Column("subject", "STRING", "what changed, as it is shown", nullable=False),
    Column("topic", "STRING", "full topic name, or the pattern that a verb was given; NULL: it is of no topic"),
    Column("from_state", "STRING", "what it was; of several in a minute before the first; NULL: not known"),
    Column("to_state", "STRING", "what it is now, or what was done", nullable=False),
    Column("reason_code", "STRING", "why, as a code of geo.reasons; of several the last that had one; NULL: none"),
    Column("reason", "STRING", "why, and what came of it"),
    Column("by", "STRING", "user, host and process that wrote it", nullable=False),
    Column("count", "BIGINT", "how often that happened in the minute; of one id the highest counts", nullable=False),
    version=1,
    least_version=1,
    order=("count",),
)

LOAD_REPORTS = _journal(
    "load_reports",
    ("broker",),
    Column("broker", "STRING", "its name, unique in the cluster", nullable=False),
    Column("holder", "STRING", "its process, as in owners", nullable=False),
    Column("state", "STRING", "up; leaving: it gets no bundle and hands over those it has; left", nullable=False),
    Column("load", "STRING", "JSON: its resources as [used, limit], and the load of each bundle that it owns", nullable=False),
    Column("loaded_at", "TIMESTAMP", "when the load was measured", nullable=False),
    Column("sequence", "BIGINT", "microseconds since 1970 by its clock, rising: each row is a sign of life", nullable=False),
)

LOAD_AVERAGES = _journal(
    "load_averages",
    ("cluster",),
    Column("cluster", "STRING", "this one", nullable=False),
    Column("averages", "STRING", "JSON: what a leader knows of loads (geo.fleet.placement.averages)", nullable=False),
    Column("term", "BIGINT", "the generation of the leader that says so", nullable=False),
    Column("number", "BIGINT", "counts on over all leaders; the highest counts", nullable=False),
    Column("kept_at", "TIMESTAMP", "when", nullable=False),
    order=("number",),
)

ASSIGNMENTS = _journal(
    "assignments",
    ("bundle",),
    Column("bundle", "STRING", "tenant/namespace/0x00000000_0x40000000", nullable=False),
    Column("broker", "STRING", "who is to own it; empty: nobody, it is about to be split", nullable=False),
    Column("term", "BIGINT", "the generation of the leader that says so", nullable=False),
    Column("number", "BIGINT", "counts on over all leaders; of one term the highest counts", nullable=False),
    Column("since", "TIMESTAMP", "since when that broker is to own it", nullable=False),
    Column("take_over", "BIGINT", "generation of a claim that need not be released before"),
    Column("reason", "STRING", "why this broker", nullable=False),
    Column("request", "BIGINT", "the last request for the bundle that was followed; 0: none", nullable=False),
    order=("term", "number"),
)

BUNDLES = _journal(
    "bundles",
    ("namespace",),
    Column("namespace", "STRING", "tenant/namespace", nullable=False),
    Column("boundaries", "ARRAY<BIGINT>", "ends of its bundles in the space of hashes, ascending", nullable=False),
    Column("term", "BIGINT", "the generation of the leader that says so", nullable=False),
    Column("number", "BIGINT", "counts on over all leaders; of one term the highest counts", nullable=False),
    Column("reason", "STRING", "what was done last", nullable=False),
    order=("term", "number"),
)

BUNDLE_REQUESTS = _journal(
    "bundle_requests",
    ("bundle",),
    Column("bundle", "STRING", "tenant/namespace/0x00000000_0x40000000", nullable=False),
    Column("action", "STRING", "unload, transfer or split", nullable=False),
    Column("broker", "STRING", "of a transfer, to whom"),
    Column("positions", "ARRAY<BIGINT>", "of a split, where"),
    Column("by", "STRING", "the process that recorded it", nullable=False),
    Column("sequence", "BIGINT", "counts the requests of this cluster; what was asked last counts", nullable=False),
    Column("asked_at", "TIMESTAMP", "when", nullable=False),
)

PLACEMENT_POLICIES = _journal(
    "placement_policies",
    ("kind", "name"),
    Column("kind", "STRING", "isolation, domain or anti-affinity", nullable=False),
    Column("name", "STRING", "of the policy; of anti-affinity the namespace", nullable=False),
    Column("value", "STRING", "JSON: what it says; NULL: it was removed"),
    Column("by", "STRING", "the process that recorded it", nullable=False),
    Column("sequence", "BIGINT", "counts the rows of this cluster; of isolation the order of the policies", nullable=False),
    Column("set_at", "TIMESTAMP", "when", nullable=False),
)

JOURNALS = (
    *(TOPICS, LEDGERS, FINISHED, OWNERS, PROCESSES, LINKS, REQUESTS, CURSORS, VERSION_SUBSCRIPTIONS, VERSION_STARTS),
    *(LOAD_REPORTS, LOAD_AVERAGES, ASSIGNMENTS, BUNDLES, BUNDLE_REQUESTS, PLACEMENT_POLICIES),
)
"""The tables of which the newest row of each subject counts, and which are kept small by that; of MARKERS each row does. EVENTS are kept
small by whoever writes them, so that nobody asks for them where nothing happens."""
