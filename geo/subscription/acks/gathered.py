"""What records of `__acks` tell of one subscription after another: gathered by the process that folds, or by tasks where there are many. What
a record means is decided in `fold.py`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from geo.ids import LedgerId
from geo.subscription.acks.fold import Fold, Received
from geo.subscription.acks.record import is_newer
from geo.subscription.acks.subscription_state import SubscriptionState

MERGED_AT_ONCE = 10_000
"""Records of a subscription that are merged at once: the first look has all of the log."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record, and where it lies in its ledger."""

    ledger: LedgerId
    entry: int
    told: Received


@dataclass(frozen=True, slots=True)
class Gathered:
    """What some records tell of the subscription with this key; `state` None: nothing. `ends`: up to which entries of their ledgers they
    go; `unread`: of ledgers the first entry that a newer program wrote; `refused`: how many changed nothing, by the reason's text.
    `size`: bytes of the state where it came from a task, else 0."""

    key: str
    state: SubscriptionState | None
    days: Mapping[LedgerId, int]
    ends: Mapping[LedgerId, int]
    unread: Mapping[LedgerId, int]
    refused: Mapping[str, int]
    size: int = 0

    def folded(self, unread: Mapping[LedgerId, int]) -> dict[LedgerId, int]:
        """Up to which entry of each ledger they count as folded. Never past a record that a newer program wrote, of which `unread` knows the
        first: readers find that one in the log until one of them can read it."""
        return {ledger: min(end, unread.get(ledger, end + 1) - 1) for ledger, end in self.ends.items()}


def gather(cluster: str, key: str, records: Iterable[Record], before: SubscriptionState | None = None) -> Gathered:
    """`before`: what is known of where the subscription begins, by which records of an older epoch are refused."""
    fold = Fold(cluster, {} if before is None else {key: before}, days={})
    ends: dict[LedgerId, int] = {}
    unread: dict[LedgerId, int] = {}
    left = iter(records)
    while batch := list(islice(left, MERGED_AT_ONCE)):
        for one in batch:
            ends[one.ledger] = max(one.entry, ends.get(one.ledger, -1))
            if is_newer(one.told.payload):
                unread[one.ledger] = min(one.entry, unread.get(one.ledger, one.entry))
        fold.add(one.told for one in batch)
    refused = {reason.value: count for reason, count in fold.refused.items()}
    return Gathered(key, fold.known.get(key), (fold.days or {}).get(key, {}), ends, unread, refused)
