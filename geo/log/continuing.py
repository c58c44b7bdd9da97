"""Decides from what a producer goes on: its record, the commits made since, and what the logs hold (L3). Pure: no Spark, clock or I/O.

The record names a commit of the log up to which it is exact. `tail_of` reads the commits above it, `fold` adds the producer's own batches among them,
`continued` says which of its ledgers may go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.delta.commits import Commit, Kind
from geo.delta.history import CommitName, Gone, parted, with_gaps
from geo.errors import UnsafeError
from geo.log.ledgers import REBUILD_KEY, Batch, Ledger, LedgerKey, ProducerProgress, is_foreign


@dataclass(frozen=True, slots=True)
class Own:
    """A commit of the producer itself."""

    version: int
    commit_id: str
    batch: Batch


@dataclass(frozen=True, slots=True)
class CommitsAbove:
    """The commits of a log above a known one, as far as they concern a producer."""

    own: tuple[Own, ...] = ()
    """The producer's own commits, oldest first."""
    missing: tuple[int, int] | None = None
    """The first and the last version that is not there any more; others in between may be."""
    broken: str | None = None
    """The reason why the log is not what it was: ledgers must not go on in it."""
    foreign: bool = False
    """Rows may have come that no writer of ours recorded: they may be of any ledger."""

    @property
    def certain(self) -> frozenset[str]:
        """The source partitions whose ends are known though commits are missing: a later batch says them."""
        last = -1 if self.missing is None else self.missing[1]
        return frozenset(name for own in self.own if own.version > last for name in own.batch.sources)


def tail_of(
    known: CommitName, table_id: str, newest: int, at_known: Commit | None, first: int, commits: Iterable[Commit], producer: str
) -> CommitsAbove:
    """Read, from `commits`, what concerns a producer that knows the log up to `known`. They are those of the versions `first` to `newest` that are
    there.

    `table_id` is the log's now, `at_known` the commit that is now at `known.version`; None: it is not there.
    """
    if (other := parted(known, table_id, newest, at_known)) is not None:
        return CommitsAbove(broken=f"the log {other.how}")
    own, gone, broken, foreign = [], [], None, False
    for commit in with_gaps(commits, first, newest):
        if isinstance(commit, Gone):
            gone += [commit.first, commit.last]
            continue
        if broken is None and commit.kind in (Kind.RESTORE, Kind.REWRITE):
            broken = f"version {commit.version} of the log is a {commit.what}"
        elif broken is None and commit.has_record(REBUILD_KEY):
            broken = f"version {commit.version} of the log brought messages back from a peer, {commit.who}"
        foreign |= is_foreign(commit)
        batch = Batch.decode(commit.user_metadata)
        if batch is not None and batch.producer == producer:
            own.append(Own(commit.version, commit.commit_id, batch))
    return CommitsAbove(tuple(own), (gone[0], gone[-1]) if gone else None, broken, foreign)


def fold(progress: ProducerProgress, tail: CommitsAbove) -> tuple[ProducerProgress, set[LedgerKey]]:
    """The progress with the producer's own commits, and the keys that they changed. Raises UnsafeError if they do not follow
    on."""
    changed: set[LedgerKey] = set()
    for own in tail.own:
        progress = progress.after(own.batch, bridged=tail.missing is not None)
        changed |= {span.key for span in own.batch.spans}
    return progress, changed


def continued(
    progress: ProducerProgress,
    ends: Mapping[int, int],
    peers: Mapping[str, Mapping[int, int] | None],
    tail: CommitsAbove,
    *,
    complete: bool = True,
    oldest_us: int | None = None,
    now_us: int | None = None,
) -> tuple[ProducerProgress, dict[LedgerKey, str]]:
    """The progress a producer may go on with, and by key why a ledger is given up.

    `progress` has what `tail` says. `ends` and `peers` are ledger → last entry, in the own log and in each peer; None for a peer that cannot be
    read. `complete`: what is known of the producer is all, for it stopped cleanly or is this process; so missing commits are none of its own.
    `oldest_us`: begin of the oldest date of which the log still has messages. `now_us`: a clock that is right.

    A ledger that is given up stays as it is; its key gets a new one with the next batch. The sources' ends are kept: what was published is not
    published again. Raises UnsafeError if the own log holds more of a ledger than any commit of its producer explains. So it does if commits are
    missing so that the end of a source cannot be known.

    A ledger is compared with every peer before it goes on after a start, or given up where that cannot be. But one that was opened while a peer was
    away goes on as long as that peer has not been read at a start. Otherwise each start would open another one (L4). So one case is left in which
    an id can be used twice. A region is put back from a backup, at a start where a peer cannot be read. A ledger of the backup was opened while the
    same peer was away, and reached it later. And no start in between found the peer readable. A peer whose root folder is missing counts as one
    that was never made.
    """
    kept: dict[LedgerKey, Ledger] = {}
    reasons: dict[LedgerKey, str] = {}
    away = {name for name, held in peers.items() if held is None}
    for key, ledger in progress.ledgers.items():
        found = ends.get(ledger.ledger_id, -1)
        if tail.missing is not None and not complete and key.source not in tail.certain:
            _refuse_unknown(key, ledger, found, tail, oldest_us)
        if found > ledger.end and tail.missing is None and tail.broken is None:
            raise UnsafeError(
                f"ledger {ledger.ledger_id} (source {key.source!r}): the log holds entries up to {found}, the producer's record "
                f"and commits explain {ledger.end}. Another writer used this ledger. "
                "Publish under a new producer name, and run `geo verify`."
            )
        reason = tail.broken or _difference(ledger, found, peers, away, now_us)
        if reason is not None:
            reasons[key] = f"ledger {ledger.ledger_id} is closed at entry {ledger.end}: {reason}"
        else:
            kept[key] = replace(ledger, uncompared=tuple(sorted(away.intersection(ledger.uncompared))))
    return replace(progress, ledgers=kept), reasons


def _refuse_unknown(key: LedgerKey, ledger: Ledger, found: int, tail: CommitsAbove, oldest_us: int | None) -> None:
    """Raises UnsafeError unless it is sure that no missing commit published to this ledger."""
    assert tail.missing is not None
    # Dates expire from the oldest on, so what came after a message that is there is there too.
    expired = ledger.end < 0 and (oldest_us is None or oldest_us > ledger.time_us)
    if found == ledger.end and not expired and tail.broken is None:
        return
    raise UnsafeError(
        f"ledger {ledger.ledger_id} (source {key.source!r}): the producer did not stop cleanly, its record and commits explain "
        f"entries up to {ledger.end}, the log holds them up to {found}, and the log's commits {tail.missing[0]} to "
        f"{tail.missing[1]} were cleaned up since. How far its source was published cannot be known, so nothing is published. Put those files "
        "of `_delta_log` back from a copy and start again, or find out from the newest messages of this producer where its source "
        "goes on, and publish from there under a new producer name."
    )


def _difference(
    ledger: Ledger, found: int, peers: Mapping[str, Mapping[int, int] | None], away: Collection[str], now_us: int | None
) -> str | None:
    """Tells why a ledger must not go on in a log that is what it was, or None."""
    if found != ledger.end:
        return f"the log ends at entry {found}" + (", and the commits that would explain it are gone" * (found > ledger.end))
    if holders := sorted(name for name, held in peers.items() if held is not None and held.get(ledger.ledger_id, -1) > found):
        return f"{', '.join(holders)} holds more of it"
    if unread := sorted(set(away) - set(ledger.uncompared)):
        return f"{', '.join(unread)} cannot be read now, and may hold more of it"
    if now_us is not None and ledger.time_us > now_us + CLOCK_TOLERANCE_US:
        ahead_s = (ledger.time_us - now_us) // 1_000_000
        return f"its last publish_time is {ahead_s} s in the future, by a clock that was wrong then"
    return None
