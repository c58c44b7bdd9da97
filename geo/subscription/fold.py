"""Folding records into states: what a record changes, and why some change nothing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from geo.subscription.record import Refusal, RefusedRecordError, decode, parse_key
from geo.subscription.state import Ledger, State

HELD_ENTRIES = 10_000_000
"""How far acknowledgements may run ahead of the messages they name: hours of a fast producer, while a link is behind. A record
that names entries beyond is no acknowledgement of anything that exists."""


@dataclass(frozen=True, slots=True)
class Received:
    """A row of an `__acks` log: its key and payload."""

    key: str | None
    payload: bytes | None


@dataclass(slots=True)
class Fold:
    """The states of the subscriptions of one topic, as records come in, in any order and more than once.

    `clusters` are those of the configuration. `ends`: of each ledger in the local log its last entry, so that absurd ranges are
    known; a ledger that is not there yet ends at -1.
    """

    clusters: Collection[str]
    ends: Mapping[Ledger, int] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    """By subscription."""
    refused: Counter[Refusal] = field(default_factory=Counter)

    def add(self, records: Iterable[Received]) -> set[str]:
        """Take records in. Returns the subscriptions whose state they changed."""
        changed = set()
        for record in records:
            try:
                subscription, state = self._checked(record)
            except RefusedRecordError as error:
                self.refused[error.reason] += 1
                continue
            before = self.states.get(subscription)
            after = state if before is None else before | state
            if after != before:
                self.states[subscription] = after
                changed.add(subscription)
        return changed

    def _checked(self, record: Received) -> tuple[str, State]:
        _, subscription = parse_key(record.key or "")
        state = decode(record.payload or b"")
        origins = {origin for origin, _ in state.acked.ledgers} | {one.origin for one in state.redelivered}
        if unknown := {*origins, state.epoch.cluster} - {*self.clusters, ""}:
            raise RefusedRecordError(Refusal.UNKNOWN_CLUSTER, ", ".join(sorted(unknown)))
        for ledger, found in state.acked.ledgers.items():
            if found[-1][1] > self.ends.get(ledger, -1) + HELD_ENTRIES:
                raise RefusedRecordError(Refusal.TOO_LARGE, f"{ledger[0]}:{ledger[1]} up to entry {found[-1][1]}")
        known = self.states.get(subscription)
        if known is not None and state.epoch < known.epoch:
            raise RefusedRecordError(Refusal.OLDER_EPOCH, f"{state.epoch}, the subscription is at {known.epoch}")
        return subscription, state
