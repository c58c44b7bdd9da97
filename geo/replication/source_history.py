"""Meaning of the commits of a link's source for the link. Pure: no Spark, clock or I/O.

It never decides to skip. A change that it cannot vouch for is a Fault, with the exact range and the verb that resolves it. Commits that are gone
are a reason to compare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from geo.delta.actions import Touched, touched_by
from geo.delta.commits import Commit, Kind
from geo.delta.history import LOOK_BACK, CommitName, Gone, parted, with_gaps
from geo.log.ledgers import REBUILD_KEY, Batch, is_foreign
from geo.reasons import Reason
from geo.replication.link_state import LinkRecord, backfilled
from geo.text import counted


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why a link may not go on: what happened, and the first and last version it concerns."""

    what: str
    first: int
    last: int
    lost: Sequence[str] = field(default=())
    """Messages that are no longer in the source, as `origin:ledger:first-last`."""
    beside: int = 0
    """Messages that the target holds of the source's log of before, of ledgers that the source does not know now."""
    code: Reason = Reason.SOURCE_CHANGED

    def message(self, source: str, target: str, topic: str, cursor: CommitName | None) -> str:
        lost = f" No longer in the source: {', '.join(self.lost)}." if self.lost else ""
        versions = f"version {self.first}" if self.first == self.last else f"versions {self.first}-{self.last}"
        held = f"{target} holds everything up to version {cursor.version}; " if cursor else ""
        return (
            f"{self.what} ({versions} of {source}).{lost} {held}nothing was skipped. {beside_words(self.beside, source, target, topic)}"
            f"If the source is right as it is now, run: geo reconcile --source {source} --target {target} --topic {topic}"
        )


def beside_words(messages: int, source: str, target: str, topic: str) -> str:
    """Words for what a comparison with a log that was made again does not do, and the verbs that do it. Empty if there is nothing to say."""
    if not messages:
        return ""
    return (
        f"{target} holds {counted(messages, 'message')} of the log of before, in ledgers that {source} does not know: a reconcile brings what "
        f"{source} has now beside them, also what was published again under new ids. To hold the new log alone, first run: geo topics delete "
        f"--cluster {target} --topic {topic}. To get the log of before back, run: geo rebuild --cluster {source} --from {target} --topic {topic}. "
    )


@dataclass(frozen=True, slots=True)
class CompareLogs:
    """The reason why reading on from the cursor would not do, though nothing is wrong: both logs are compared instead. `unseen`: some commits could
    not be looked at, so what they removed can only be derived from the rows. `touched`: the partitions into which somebody else put rows; None: it
    may be any."""

    why: str
    unseen: bool = False
    touched: Touched = frozenset()


def judge(
    cursor: CommitName, table_id: str, newest: int, before: Sequence[Commit], since: Iterable[Commit], origins: frozenset[str]
) -> Fault | CompareLogs | None:
    """Judges whether a link of these origins may read the versions above its cursor, up to `newest` of the source.

    `table_id` and `newest` are the source's now. `before` are the LOOK_BACK commits that end at the cursor's, `since` those above it, both oldest
    first and as far as they are there. `since` is read once. None: it may.
    """
    at_cursor = next((commit for commit in before if commit.version == cursor.version), None)
    if (other := parted(cursor, table_id, newest, at_cursor)) is not None:
        code = Reason.SOURCE_RECREATED if other.is_remade else Reason.SOURCE_RESTORED
        return Fault(f"the source {other.how}", other.first, other.last, code=code)
    compare: CompareLogs | None = None
    touched: Touched = frozenset()
    recent, published = deque(before, LOOK_BACK + 1), dict[int, int]()
    for earlier in before:
        _is_published_again(earlier, published)
    for commit in with_gaps(since, cursor.version + 1, newest):
        if isinstance(commit, Gone):
            if compare is None or not compare.unseen:
                compare = CompareLogs(f"{commit} of the source are gone (log cleanup)", unseen=True)
            continue
        if (fault := _fault(commit)) is not None:
            return fault
        if (why := _doubt(commit, recent, published, origins)) is not None:
            compare = compare or CompareLogs(why)
            if is_foreign(commit):
                touched = touched_by(touched, commit.actions)
        recent.append(commit)
    if at_cursor is None:
        compare = CompareLogs(f"the commit that the link stood at, version {cursor.version}, is gone (log cleanup)", unseen=True)
    return None if compare is None else replace(compare, touched=touched)


def _fault(commit: Commit) -> Fault | None:
    if commit.kind is Kind.RESTORE:
        back_to = commit.parameters.get("version", "")
        if not back_to.isdigit():
            what = f"a RESTORE {commit.who} in version {commit.version}"
            return Fault(what, commit.version, commit.version, code=Reason.SOURCE_RESTORED)
        first = int(back_to) + 1
        what = f"a RESTORE {commit.who} in version {commit.version}, which undid versions {first}-{commit.version - 1}"
        return Fault(what, min(first, commit.version), commit.version, code=Reason.SOURCE_RESTORED)
    if commit.kind is Kind.REWRITE:
        why = f" ({commit.done.why})" if commit.done.why else ""
        return Fault(f"messages were changed: {commit.what}{why}", commit.version, commit.version)
    return None


def _is_published_again(commit: Commit, ends: dict[int, int]) -> bool:
    """Tells whether a commit says that it published entries that an earlier one published. `ends`: of the ledgers that those before it published, as
    far as their records say; its own count from now on.
    """
    batch = Batch.decode(commit.user_metadata) if commit.kind is Kind.APPEND else None
    found = False
    for span in () if batch is None else batch.spans:
        end = ends.get(span.ledger_id, -1)
        found |= span.first <= end
        ends[span.ledger_id] = max(end, span.last)
    return found


def _doubt(commit: Commit, recent: Iterable[Commit], published: dict[int, int], origins: frozenset[str]) -> str | None:
    """Tells why the rows of a commit may be in the target, so that they have to be compared. None: they are new, as far as one can see."""
    version, published_again = f"version {commit.version} of the source", _is_published_again(commit, published)
    if commit.kind is Kind.ERASURE:
        return f"messages were erased in the source ({commit.who})"
    if (refill := _refill(commit, origins)) is not None:
        return f"{version} is {refill}, of which the target may hold some"
    if published_again or any(commit.repeats(one) for one in recent):
        return f"{version} is a commit that landed twice"
    if is_foreign(commit):
        return f"{version} has rows that no writer of delta-geo recorded ({commit.what})"
    return None


def _refill(commit: Commit, origins: frozenset[str]) -> str | None:
    """Names what added, by this commit, entries that the source had lacked and that were published long ago: they may have
    crossed before. None: the commit did not.
    """
    if commit.has_record(REBUILD_KEY):
        return "a rebuild"
    if origins & (backfilled(commit.user_metadata) or frozenset()):
        return "a step of a backfill"
    record = LinkRecord.decode(commit.user_metadata)
    if record is not None and record.reconciling and origins & set(record.origins):
        return f"a step of the reconcile of {record.link}"
    return None


def brings(commit: Commit, origins: frozenset[str], source: str) -> bool:
    """Tells whether a commit of the source can hold rows of these origins, as far as its record tells."""
    if commit.kind is not Kind.APPEND:
        return False
    if (record := LinkRecord.decode(commit.user_metadata)) is not None:
        return bool(origins & set(record.origins))
    if (filled := backfilled(commit.user_metadata)) is not None:
        return bool(origins & filled)
    if Batch.decode(commit.user_metadata) is not None:
        return source in origins
    return True


def published_after(commits: Iterable[Commit], time_us: int) -> bool:
    """Tells whether all messages of the commits were published at or after this time, as far as their records tell. If not, it is not known."""
    for commit in commits:
        batch = Batch.decode(commit.user_metadata)
        if commit.kind is Kind.APPEND and (batch is None or batch.publish_time_us < time_us):
            return False
    return True
