"""Judges a removal: which messages would be lost, and whether it is refused. Pure: no Spark, clock or I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from geo.ids import LedgerId
from geo.log.ledgers import LedgerPart
from geo.replication.gaps import Extent
from geo.subscription.acks.ranges import Ranges, difference, size
from geo.text import counted

LOSE = "--lose-what-only-it-has"
"""The option by which a person says that messages may be lost."""

EXAMPLES = 5

Extents = Mapping[LedgerId, Extent]
"""The messages of a log."""


@dataclass(frozen=True, slots=True)
class OnlyThere:
    """Messages that one log has of a topic and no other log that could be read: how many, and some ranges of them as
    `origin:ledger:first-last`. Where a ledger has a hole, which is a fault, there may be fewer, never more. `away`: clusters
    that cannot be read, with the reason; they may hold some of it.
    """

    messages: int = 0
    examples: tuple[str, ...] = ()
    away: Mapping[str, str] | None = None

    @property
    def told(self) -> str:
        """For people, as `3 of them in no other cluster (us:7:0-2)`."""
        if not self.messages:
            return "all of them in other clusters too"
        named = ", ".join(self.examples)
        unread = "".join(f"; {name} cannot be read, and may hold some: {why}" for name, why in sorted((self.away or {}).items()))
        return f"{self.messages:,} of them in no other cluster{' that can be read' if unread else ''} ({named}){unread}"


def only_there(mine: Extents, others: Sequence[Extents], away: Mapping[str, str] | None = None) -> OnlyThere:
    """Subtracts from `mine` what the `others` have. A ledger in which another log has a hole counts as if it had nothing of it,
    unless both have the same entries.
    """
    messages, examples = 0, list[str]()
    for ledger, extent in sorted(mine.items()):
        left: Ranges = ((extent.first, extent.last),)
        for other in others:
            there = other.get(ledger)
            if there is None:
                continue
            if there == extent and there.squares is not None:
                left = ()
            elif there.is_whole:
                left = difference(left, ((there.first, there.last),))
        if left:
            messages += min(extent.count, size(left))
            examples += [f"{ledger}:{first}-{last}" for first, last in left]
    return OnlyThere(messages, tuple(examples[:EXAMPLES]), away if messages else None)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic of a cluster that is to be deleted there, and what hangs on it."""

    topic: str
    cluster: str
    messages: int
    only: OnlyThere
    lives: str | None
    """The one who owns something of it and lives; None: nobody."""
    links: tuple[str, ...]
    """Links that replicate it into this cluster and have a row, by name."""
    requests: int
    producers: tuple[str, ...]
    subscriptions: tuple[str, ...]
    """Known here and not deleted."""
    publications: tuple[str, ...]
    """Publications that the configuration lets the broker publish into it, by name."""
    unended: bool
    """It was deleted before, and that has not ended."""
    removes: bool
    """That earlier delete may have removed some of its messages."""


def refusal_of_topic(facts: TopicFacts, *, lose: bool) -> str | None:
    """Tells why the topic is not to be deleted now; None: it may be."""
    if facts.lives is not None:
        return facts.lives
    if facts.only.messages and not lose:
        run = f"To bring them elsewhere first, run the links out of {facts.cluster}"
        if facts.unended:
            run += ", which carry it again: an earlier delete had only begun, and its refusal takes that back"
        if facts.removes:
            run = "No link carries it any more, since an earlier delete has begun to remove it, but its log can still be read"
        return (
            f"{facts.topic} in {facts.cluster}: {counted(facts.messages, 'message')}, {facts.only.told}. {run}; to lose them, say "
            f"{LOSE}."
        )
    return None


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """A topic of a cluster that is to be removed. `only`: what it alone has; None: that is not known. `lacking`: by other
    cluster, messages first written in the cluster that another one holds and this one was still to get."""

    topic: str
    only: OnlyThere | None
    lacking: Mapping[str, int]


def lacking(of: str, logs: Mapping[str, Mapping[LedgerId, LedgerPart]], due: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Counts the messages of the origin `of` that each cluster lacks and another one holds, by cluster; ledgers have no holes.
    `logs`: by cluster.

    `due`: the clusters that are to get them, with the first entry wanted of each ledger (`origin:ledger`), if not the first.
    What is below the first entry that a cluster has of a ledger has expired there.
    """
    found: dict[str, int] = {}
    for cluster, floors in due.items():
        here, lacks = logs.get(cluster, {}), dict[LedgerId, int]()
        for name, log in logs.items():
            for ledger, part in log.items() if name != cluster else ():
                if ledger.origin != of or not (part.replicate_to is None or cluster in part.replicate_to):
                    continue
                begin = max(part.first, floors.get(str(ledger), 0), here[ledger].last + 1 if ledger in here else 0)
                lacks[ledger] = max(lacks.get(ledger, 0), part.last - begin + 1)
        if count := sum(lacks.values()):
            found[cluster] = count
    return found


def refusal_of_cluster(
    name: str, topics: Sequence[LeftBehind], why_unread: str | None, lives: Mapping[str, str], *, lose: bool
) -> list[str]:
    """Tells why the cluster is not to be removed now; none: it may be. `lives`: by other cluster who owns a way from it and lives."""
    found = [lives[other] for other in sorted(lives)]
    if why_unread is not None and not lose:
        found.append(f"what only {name} has is not known, since it cannot be read: {why_unread}. To lose it, say {LOSE}.")
    for one in topics:
        if one.only is not None and one.only.messages and not lose:
            found.append(
                f"{one.topic} in {name}: {one.only.told}. To bring them elsewhere first, run the links out of {name}; to lose them, "
                f"say {LOSE}."
            )
    return found
