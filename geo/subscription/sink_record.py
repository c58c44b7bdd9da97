"""Record of a commit of a sink about the subscription whose messages it added. Pure: no Spark, clock or I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from geo.delta.commits import Commit, Kind, read_record
from geo.errors import UnsafeError
from geo.ids import LedgerId
from geo.log.ledgers import LEDGER_RANDOM_BITS
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import decode, encode

SINK_KEY = "geo.sink"
SINK_VERSION = 1

MOST_BYTES = 256 * 1024
"""Bytes of the messages in a record. A subscription that is consumed in order needs some 15 bytes a ledger."""

FORGOTTEN_S = 7 * 24 * 3600
"""Seconds by which a ledger of a record must be older than the youngest one to count as expired and forgotten (geo.subscription.acks.forgetting).
Besides, nothing may be known to be acknowledged of it, and the log here must not hold it. A younger one may come yet. One that is held would be
delivered: a producer goes on in one ledger for years, and a region may lack what was acknowledged elsewhere.
"""


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """With this commit the sink has rows of all of `messages`, which were delivered in `epoch`; those of earlier commits are
    among them. `number` counts the commits of the subscription, `token` is this one's alone."""

    subscription: str
    epoch: Epoch
    messages: MessageSet
    number: int
    token: str

    def encode(self) -> str:
        state = encode(AckState(self.epoch, acked=self.messages), limited=False)
        return json.dumps(
            {
                SINK_KEY: SINK_VERSION,
                "subscription": self.subscription,
                "messages": base64.b64encode(state).decode(),
                "number": self.number,
                "token": self.token,
            },
            separators=(",", ":"),
        )

    @classmethod
    def decode(cls, user_metadata: str | None) -> SinkRecord | None:
        """None for another commit. Raises SchemaError for a record of a newer program."""

        def make(fields: Mapping[str, Any]) -> SinkRecord:
            state = decode(base64.b64decode(fields["messages"]), limited=False)
            return cls(fields["subscription"], state.epoch, state.acked, fields["number"], fields["token"])

        return read_record(user_metadata, SINK_KEY, SINK_VERSION, make)

    def is_later_than(self, epoch: Epoch) -> bool:
        """Tells whether its messages were delivered in a later epoch."""
        return AckState(self.epoch).rank > AckState(epoch).rank

    def after(
        self, epoch: Epoch, messages: MessageSet, acked: MessageSet, token: str, held: Collection[LedgerId] = ()
    ) -> SinkRecord:
        """The record of the commit that adds `messages` next. `held`: the ledgers that the log here holds."""
        before = self.messages if self.epoch == epoch else MessageSet()
        return SinkRecord(
            self.subscription, epoch, _bounded(before | messages, acked, {*messages.ledgers, *held}), self.number + 1, token
        )


def newest_of(commits: Iterable[Commit], subscription: str) -> SinkRecord | None:
    """Finds what the newest of the commits, which come newest first, say of a subscription; None if none says anything. The messages are those of
    which the sink has rows: after a RESTORE, those of the version that was restored. Raises UnsafeError where a RESTORE does not tell that version.
    """
    number, counts_up_to = None, None
    for commit in commits:
        counts = counts_up_to is None or commit.version <= counts_up_to
        if counts and commit.kind is Kind.RESTORE:
            told = commit.parameters.get("version", "")
            if not told.isdigit():
                raise UnsafeError(
                    f"version {commit.version} of the sink is a RESTORE {commit.who} to a time. Which messages it has is not told: restore it "
                    "once more, TO VERSION AS OF a version."
                )
            counts_up_to = int(told)
        record = SinkRecord.decode(commit.user_metadata)
        if record is None or record.subscription != subscription:
            continue
        number = record.number if number is None else number
        if counts:
            return replace(record, number=number)
    return None if number is None else SinkRecord(subscription, Epoch(), MessageSet(), number, "")


def _bounded(messages: MessageSet, acked: MessageSet, held: Collection[LedgerId]) -> MessageSet:
    """Without the oldest ledgers of which all is acknowledged, or forgotten since, if a record of all would be too large."""
    size = len(encode(AckState(acked=messages), limited=False))
    if size <= MOST_BYTES:
        return messages
    kept = dict(messages.ledgers)
    forgotten_to = (max(ledger.ledger_id for ledger in kept) >> LEDGER_RANDOM_BITS) - FORGOTTEN_S << LEDGER_RANDOM_BITS
    for ledger in sorted(kept, key=lambda one: one.ledger_id):
        alone = MessageSet({ledger: kept[ledger]})
        is_forgotten = ledger.ledger_id < forgotten_to and ledger not in acked.ledgers and ledger not in held
        if is_forgotten or not alone - acked:
            size -= len(encode(AckState(acked=alone), limited=False))
            del kept[ledger]
        if size <= MOST_BYTES:
            break
    return MessageSet(kept)
