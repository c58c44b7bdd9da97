"""The routing rule: which rows of a source's topic log cross a link to its target.

Pure, and the one definition: conditions (`geo.delta.predicate`) that are held against rows at hand and written as SQL for Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from geo.config.model import Link
from geo.delta.predicate import All, Among, AtLeast, Compare, IsNull, Lists, Predicate, TimeUs
from geo.errors import UsageError
from geo.log.conditions import HAS_ID, IS_MESSAGE
from geo.names import check_cluster
from geo.text import show


class MarkerKind(str, Enum):
    """Values of the column `marker` of a topic log (PIP-33; Pulsar's Markers). What such a row holds: geo.subscription.pip33.markers."""

    SNAPSHOT_REQUEST = "SNAPSHOT_REQUEST"
    SNAPSHOT_RESPONSE = "SNAPSHOT_RESPONSE"
    SNAPSHOT = "SNAPSHOT"
    SUBSCRIPTION_UPDATE = "SUBSCRIPTION_UPDATE"


# Markers that other clusters must see. SNAPSHOT is a note of a cluster to itself, and a kind this program does not know
# is one whose meaning in another cluster it cannot vouch for.
CROSSING_MARKERS = frozenset(kind.value for kind in MarkerKind if kind is not MarkerKind.SNAPSHOT)

MICROSECONDS = 1_000_000

AHEAD_US = 86_400 * MICROSECONDS
"""Microseconds by which a row may say that it was published later than now. A publisher whose clock is five minutes off publishes nothing."""


class Verdict(str, Enum):
    """Verdict on a row at a link: the first filter that refuses it, in this order, or REPLICATE."""

    MARKER = "MARKER"
    FOREIGN_ORIGIN = "FOREIGN_ORIGIN"
    IMPOSSIBLE = "IMPOSSIBLE"
    NOT_ADDRESSED = "NOT_ADDRESSED"
    EXPIRED = "EXPIRED"
    REPLICATE = "REPLICATE"


@dataclass(frozen=True, slots=True)
class Rule:
    """The part of a link and of a topic's policy that decides about a row.

    `origins` are the clusters whose messages cross; never the target's own, which would come back doubled. `message_ttl_s` is the age in seconds
    beyond which a message is not sent; None sends all. Raises UsageError.
    """

    source: str
    target: str
    origins: frozenset[str]
    message_ttl_s: int | None = None

    def __post_init__(self) -> None:
        for cluster in (self.source, self.target, *self.origins):
            check_cluster(cluster)
        name = f"rule {self.source}->{self.target}"
        if self.source == self.target:
            raise UsageError(f"{name}: a cluster needs no rule to itself")
        if not self.origins or self.target in self.origins:
            raise UsageError(
                f"{name}: origins {show(sorted(self.origins))}; expected: at least one cluster, and not {self.target}"
            )
        if self.message_ttl_s is not None and self.message_ttl_s <= 0:
            raise UsageError(f"{name}: message_ttl_s {self.message_ttl_s}; expected: above 0")

    @classmethod
    def of(cls, link: Link, message_ttl_s: int | None = None) -> Rule:
        """Rule of a link for a topic whose messages live so long."""
        return cls(link.source, link.target, frozenset(link.origins), message_ttl_s)

    def expired_before_us(self, now_us: int) -> int | None:
        """The publish time, in microseconds since the epoch, before which a row has expired; None when none does."""
        return None if self.message_ttl_s is None else now_us - self.message_ttl_s * MICROSECONDS


Floors = Mapping[str, int]
"""`origin:ledger` → the first entry wanted (`start: latest`)."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows of the rule's origins, no markers, that did not cross though somebody may miss them, counted."""

    expired: int = 0
    impossible: int = 0

    @classmethod
    def of(cls, verdicts: Mapping[Verdict, int]) -> LeftOut:
        return cls(verdicts.get(Verdict.EXPIRED, 0), verdicts.get(Verdict.IMPOSSIBLE, 0))


def filters(rule: Rule, now_us: int) -> tuple[tuple[Verdict, Predicate], ...]:
    """Lists what the link refuses `now_us` microseconds after the epoch, in the rule's order. Each is a verdict, and the rows that have it unless
    one before it has them.

    - A marker of a crossing kind is treated like a message.
    - A row without an origin is of no origin the rule names.
    - A row is impossible whose id no message can have, or that was published before 1970 or a day after now. No producer of ours wrote it, and
      whoever would read it could stumble over it. It is counted and reported.
    - `replicate_to`: NULL is every cluster, an empty list none; a NULL in the list names nobody.
    - A message as old as the TTL still crosses. One without a publish time is taken as not expired. Nothing shows that it is too old, and a message
      too many is seen while one too few is not.
    """
    outside = Compare("publish_time", "<", TimeUs(0)) | Compare("publish_time", ">", TimeUs(now_us + AHEAD_US))
    found: list[tuple[Verdict, Predicate]] = [
        (Verdict.MARKER, ~IsNull("marker") & ~Among("marker", CROSSING_MARKERS)),
        (Verdict.FOREIGN_ORIGIN, ~Among("origin", rule.origins)),
        (Verdict.IMPOSSIBLE, ~HAS_ID | outside),
        (Verdict.NOT_ADDRESSED, ~IsNull("replicate_to") & ~Lists("replicate_to", rule.target)),
    ]
    if (expired_before_us := rule.expired_before_us(now_us)) is not None:
        found.append((Verdict.EXPIRED, Compare("publish_time", "<", TimeUs(expired_before_us))))
    return tuple(found)


def crosses(rule: Rule, floors: Floors | None, now_us: int) -> Predicate:
    """The rows whose verdict is REPLICATE, from the link's floors on."""
    return All((*(~refused for _, refused in filters(rule, now_us)), *([from_floors(floors)] if floors else [])))


def from_floors(floors: Floors) -> Predicate:
    """The rows that no floor leaves out."""
    return AtLeast("entry_id", ("origin", "ledger_id"), floors)


def messages_wanted(rule: Rule, floors: Floors | None, now_us: int) -> Predicate:
    """Selects as `crosses`, without markers, whose time is over. Of a replica it says the same as of the row it is a copy of."""
    return IS_MESSAGE & crosses(rule, floors, now_us)


def impossible(rule: Rule, now_us: int) -> Predicate:
    """The rows whose verdict is IMPOSSIBLE."""
    before: list[Predicate] = []
    for one, refused in filters(rule, now_us):
        if one is Verdict.IMPOSSIBLE:
            return All((refused, *before))
        before.append(~refused)
    raise AssertionError(Verdict.IMPOSSIBLE)
