"""The cursor of a subscription, a row of `system/cursors`. It is what a cluster has folded of the records, and what that becomes once more are
taken in. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from geo.ids import LedgerId
from geo.names import Topic
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.forgetting import Remembered
from geo.subscription.acks.gathered import Gathered
from geo.subscription.acks.record import RecordRefusal, decode_all, encode_all, key_of
from geo.times import from_us, in_us


@dataclass(frozen=True, slots=True)
class Cursor:
    """`folded`: up to which entry of each ledger of `__acks` records are in it. `refused`: how many changed nothing, by the reason's text.
    `compacted_us`: when compact records last told all of it, in microseconds since 1970; None: never. `sequence` counts its rows; 0: there is
    none yet."""

    topic: Topic
    subscription: str
    remembered: Remembered = field(default_factory=Remembered)
    folded: Mapping[LedgerId, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    compacted_us: int | None = None
    sequence: int = 0

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Cursor:
        remembered = Remembered(decode_all(bytes(row["state"]), limited=False), parse_ends(row["named_on"] or {}))
        compacted_us = in_us(row["compacted_at"])
        folded, refused = parse_ends(row["folded"]), dict(row["refused"] or {})
        return cls(Topic.parse(row["topic"]), row["subscription"], remembered, folded, refused, compacted_us, row["sequence"])

    @property
    def key(self) -> str:
        return key_of(self.topic, self.subscription)

    def taking(
        self, told: Gathered, unread: Mapping[LedgerId, int], today: int, ttl_days: int | None, *, all_read: bool
    ) -> Cursor:
        """Adds what records tell that are not in it. `unread`: of ledgers the first record that a newer program wrote: nothing from there on counts
        as folded. `all_read`: all records were looked at that are in no cursor. Among them are those of a newer program, which are counted once so.
        (Others that are refused behind one of those come again too, and are counted again.)
        """
        refused = Counter(self.refused)
        if all_read:
            del refused[RecordRefusal.NEWER_ENCODING.value]
        refused.update(told.refused)
        ends = {ledger: max(end, self.folded.get(ledger, -1)) for ledger, end in told.folded(unread).items()}
        remembered = dated(dated(self.remembered, today, ttl_days) | told.told, today, ttl_days)
        return replace(self, remembered=remembered, folded={**self.folded, **ends}, refused=dict(refused))

    def is_long_ago(self, now_us: int, most_s: float) -> bool:
        """Tells whether compact records told it so long ago, or never."""
        return self.compacted_us is None or now_us - self.compacted_us >= most_s * 1_000_000

    def as_row(self, now_us: int) -> dict[str, Any]:
        """The next row of it."""
        known = self.remembered.state
        state = known.here or AckState()
        return {
            "topic": str(self.topic),
            "subscription": self.subscription,
            "epoch": state.epoch.counter,
            "epoch_cluster": state.epoch.cluster,
            "deleted": state.deleted,
            "acknowledged": state.acked.size,
            "mark_delete": ends_as_text({ledger: state.acked.mark_delete(ledger) for ledger in state.acked.ledgers}),
            "ranges": state.acked.range_count,
            "state": encode_all(known, limited=False),
            "folded": ends_as_text(self.folded),
            "refused": dict(self.refused),
            "compacted_at": None if self.compacted_us is None else from_us(self.compacted_us),
            "sequence": self.sequence + 1,
            "updated_at": from_us(now_us),
            "replicated": not known.is_regional,
            "named_on": ends_as_text(self.remembered.days),
        }


def dated(remembered: Remembered, today: int, ttl_days: int | None) -> Remembered:
    """Tells where nothing expires, days are of no use."""
    return Remembered(remembered.state) if ttl_days is None else remembered.dated(today)


def parse_ends(folded: Mapping[str, int]) -> dict[LedgerId, int]:
    """`origin:ledger` → entry, as tables have it, by ledger."""
    return {LedgerId.parse(name): end for name, end in folded.items()}


def ends_as_text(ends: Mapping[LedgerId, int]) -> dict[str, int]:
    """The inverse of `parse_ends`."""
    return {str(ledger): end for ledger, end in sorted(ends.items())}
