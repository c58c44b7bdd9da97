"""Timetable of what a process does again and again, in seconds. Pure.

How long one thing waits stands beside it; how a table is looked at, in geo.delta.tail; what a person sets, in the configuration.
"""

from __future__ import annotations

# -- a supervisor and its works ------------------------------------------------------------------------------------

SUPERVISOR_LOOK_S = 0.2
"""Between two looks of a supervisor at whether all groups still run."""

STOP_S = 60.0
"""Seconds after which a work that has not stopped hangs, or does something long; it is left to whoever continues it, who fences it first."""

DISCOVERY_S = 10.0
"""Time between two questions to a group for works: a small table is read, 0.1 s."""

REMOTE_DISCOVERY_S = 60.0
"""The same of tables for which a look is a request. What all groups of a process read there is as old as that at most."""

REMOTE_FOLLOWS_S = DISCOVERY_S + REMOTE_DISCOVERY_S
"""After so long at most a group knows there what a person asked for."""

RECORD_S = 60.0
"""Time between two records of works that moved."""

LOCKED_S = 1.0
"""After so long positions are recorded that could not be, since somebody else wrote there: that takes tenths of a second, or hangs."""

ANSWER_S = 20.0
"""After so long a group that was asked for works, and has not answered, is named: a storage that hangs says nothing by itself."""

TICK_S, LEAST_TICK_S, OF_A_WORK_S = 0.2, 0.05, 0.0005
"""Between two looks at all works of a group: half a millisecond for each, within these bounds. A look at one takes some
microseconds, so a few are followed closely and a thousand cost little."""

HAND_OVER_S = 0.5
"""Time within which works that end are handed over together."""

STEADY_S = 60.0
"""Work that ran for so long since its last fault begins again to count them. (In a run that ends: work that came further.)"""

MOST_BACKOFF_S = 60.0
"""The longest pause before delayed work is tried again."""

PATIENCE_S = 600.0
"""Work that no supervisor runs is given up when faults in a row have come for so long. A storage that is away mostly comes back."""

FAILED_AGAIN_S = 300.0
"""The time when failed works of such a kind are tried again that cost something to try. What they lacked may be there, and no verb says so."""

TAKES_OVER_S = 60.0
"""An owner that lives is replaced by what begins so soon after a person asked for it. Who is there later may have come since."""

# -- producers -----------------------------------------------------------------------------------------------------

RECORD_ENDS_S, REMOTE_RECORD_ENDS_S = 10.0, 60.0
"""Time between two records of a producer's ledgers' ends. A start after a crash reads the commits since the last record: at one commit a second that
is ten. Where a look is a request it takes eight, beside the five of a commit.
"""

LOG_LOOK_S, REMOTE_LOG_LOOK_S = 10.0, 60.0
"""Time between two looks of a producer at its log's commits, beside each record, and of its clock against the storage's."""

RECORD_IDLE_ENDS_S = 300.0
"""The time when ends are recorded though no further batch comes. Until then a start needs the commits since, which are kept for a day."""

ROUTES_S = 10.0
"""Time between two reads of its topic's policy, by which a `replicate_to` is refused."""

# -- links ---------------------------------------------------------------------------------------------------------

SOURCE_LOOK_S, REMOTE_SOURCE_LOOK_S = 60.0, 600.0
"""Time between two full looks at a source, beside those by name, and beside its query. Delta's stream need not notice that an older copy of the
source was put back. On a local disk it is a matter of milliseconds.
"""

QUERY_IDLE_S = 300.0
"""Time without news after which a topic's query ends and its source is looked at by name again. A process may follow thousands of topics of which
few are busy, and a query lists the source's log at each trigger.
"""

REMOTE_REST_S = 600.0
"""So often at most the ownership and the target of a link without news are looked at where a look is a request. An append looks anyway."""

HANGS_S, HANGS_BYTES_PER_S = 600.0, 1_000_000
"""Time of a turn after which it hangs; longer by what it replicates, at a rate that any network has."""

# -- consumers, and the folding of what they acknowledged ----------------------------------------------------------

FLUSH_S = 1.0
"""Least time between two flushes of a consumer. What was acknowledged after the last one is repeated if the process is killed."""

COUNTS_S = 5.0
"""Between two records that tell only of redeliveries. After a kill as much of the counts is forgotten."""

ACKS_LOOK_S = 0.1
"""Between two looks whether there are records of acknowledgements, on a local disk."""

ACKS_REST_S = 5.0
"""The same at most where a look is a request, by a consumer that looks for messages less often than each second. It looks as often as for messages,
and at once when some have come."""

CONSUMER_LOOK_S = 10.0
"""Time between two looks of a consumer that has nothing to tell, whether another one has taken its subscription over."""

CONSUMER_PEER_LOOK_S, REMOTE_CONSUMER_PEER_LOOK_S = 5.0, 30.0
"""Time between two questions of a consumer whether a peer may be read."""

RECORD_ACKS_ENDS_S = 60.0
"""Between records of the end of the ledger of acknowledgements. Recording holds up the flush of all consumers of a namespace for half a second; a start
after a crash replays the commits since."""

COMPACT_S = 3600.0
"""At most so often a subscription that changed is published as a whole."""

# -- version sync --------------------------------------------------------------------------------------------------

MARKERS_ROUND_S = 0.1
"""Between two rounds, each a look whether logs have news: some microseconds a topic."""

MARKERS_LOOK_S = 1.0
"""Time between two looks of the tail at every topic: its log, wherever that is, its subscriptions, and whether a tick is due. Where snapshots are
more frequent, four times between two. A log on a local disk that has news is looked at in the next round.
"""

STILL_S = 5.0
"""Time between two ticks that the tail sends alone to a controller that waits for an answer. To give up takes some seconds more, and each tick is a
batch.
"""

MARKERS_ANSWER_S = 5.0
"""Longest wait of an answer for those of other clusters: each would be a batch by itself, and of three clusters two answer."""

REMOTE_VERSIONS_LOOK_S = 600.0
"""Time between two questions whether any cluster has a version subscription that regions share, while none has and a look is a request."""

MARKERS_PEERS_LOOK_S, REMOTE_MARKERS_PEERS_LOOK_S = 10.0, 60.0
"""Time between two questions to other clusters which topics have version subscriptions there, and how their links are."""

# -- brokers -------------------------------------------------------------------------------------------------------

CONFIG_LOOK_S = 5.0
"""Time between two reads of the configuration's file. A change counts when two looks have found the same."""

MEMBER_ROUND_S, REMOTE_MEMBER_ROUND_S = 1.0, 5.0
"""Seconds between two looks of a broker at what others say. These are six small tables, of which on a local disk only names are looked at while
nothing is written."""

MOST_SIGN_S = 10.0
"""At least so often a broker gives a sign of life, however long the timeout is: the leader decides by what it says."""

DECIDE_S = 10.0
"""Between two decisions of a leader by load, of which each is a sample of every bundle's. A bundle that nobody owns does not wait for one."""

OWNED_LOOK_S, REMOTE_OWNED_LOOK_S = 30.0, 60.0
"""Time between two looks of a broker whether another broker took its place. What runs finds out by itself at each append."""

STATUS_S = 60.0
"""Between two lines that say how all is."""

# -- keeping a cluster small ---------------------------------------------------------------------------------------

HOUSE_ROUND_S = 60.0
"""Between two looks at the system tables. A producer appends to `ledgers` each ten seconds, links once a minute."""

REMOTE_HOUSE_ROUND_S, IDLE_HOUSE_ROUND_S = 600.0, 3600.0
"""The same elsewhere than on a local disk, where a look is some requests for each table. The second where this process has written to none since.
What it has written itself until a table was in many files is kept small each HOUSE_ROUND_S."""

FULL_HOUSE_ROUND_S = 600.0
"""Between two looks at all topic logs. At ten commits a second a log has 6,000 more by then."""

VACUUM_S = 86_400.0
"""Between two removals of files that were replaced: they stay for a day anyway (the retention of system tables)."""
