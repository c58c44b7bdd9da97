"""Records of `__acks`, gathered for one subscription after another: by the process that folds, or by tasks where there are many. What a record means
is decided in `fold.py`. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from geo.ids import LedgerId
from geo.subscription.acks.fold import Fold, Received
from geo.subscription.acks.forgetting import Remembered
from geo.subscription.acks.record import encode_all, is_newer
from geo.subscription.acks.subscription_state import SubscriptionState

MERGED_AT_ONCE = 10_000
"""Records of a subscription that are merged at once: the first look has all of the log."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Sum of some records of the subscription with this key. `ends`: up to which entries of their ledgers they go. `unread`: of ledgers the first
    entry that a newer program wrote; `refused`: how many changed nothing, by the reason's text.
    """

    key: str
    told: Remembered
    ends: Mapping[LedgerId, int]
    unread: Mapping[LedgerId, int]
    refused: Mapping[str, int]

    @property
    def size(self) -> int:
        """Bytes of the state."""
        return len(encode_all(self.told.state, limited=False))

    def folded(self, unread: Mapping[LedgerId, int]) -> dict[LedgerId, int]:
        """Up to which entry of each ledger they count as folded. Never past a record that a newer program wrote, of which `unread` knows the first.
        Readers find that one in the log until one of them can read it."""
        return {ledger: min(end, unread.get(ledger, end + 1) - 1) for ledger, end in self.ends.items()}

    def joined(self, other: Gathered) -> Gathered:
        """Joins these records and others of the subscription."""
        ends = {of: max(self.ends.get(of, -1), other.ends.get(of, -1)) for of in {**self.ends, **other.ends}}
        unread = {**self.unread, **other.unread}
        unread = {of: min(self.unread.get(of, first), other.unread.get(of, first)) for of, first in unread.items()}
        refused = dict(Counter(self.refused) + Counter(other.refused))
        return Gathered(self.key, self.told | other.told, ends, unread, refused)


def joined(parts: Iterable[Mapping[str, Gathered]]) -> dict[str, Gathered]:
    """Joins what some records and others tell, by the keys of subscriptions."""
    found: dict[str, Gathered] = {}
    for part in parts:
        found |= {key: found[key].joined(one) if key in found else one for key, one in part.items()}
    return found


def gather_all(cluster: str, records: Iterable[Received], before: Mapping[str, SubscriptionState]) -> dict[str, Gathered]:
    """Gathers records, by the keys of subscriptions; `before` as in `gather`, by the same."""
    return {key: gather(cluster, key, some, before.get(key)) for key, some in by_key(records).items()}


def by_key(records: Iterable[Received]) -> dict[str, list[Received]]:
    """The records of each subscription; those without a key under ""."""
    found: dict[str, list[Received]] = {}
    for record in records:
        found.setdefault(record.key or "", []).append(record)
    return found


def gather(cluster: str, key: str, records: Iterable[Received], before: SubscriptionState | None = None) -> Gathered:
    """`before`: what is known of the subscription's epoch, by which records of an older one are refused."""
    fold = Fold(cluster, Remembered(before or SubscriptionState()))
    ends: dict[LedgerId, int] = {}
    unread: dict[LedgerId, int] = {}
    left = iter(records)
    while batch := list(islice(left, MERGED_AT_ONCE)):
        for one in batch:
            ends[one.ledger] = max(one.entry, ends.get(one.ledger, -1))
            if is_newer(one.payload):
                unread[one.ledger] = min(one.entry, unread.get(one.ledger, one.entry))
        fold.add(batch)
    return Gathered(key, fold.known, ends, unread, {reason.value: count for reason, count in fold.refused.items()})
