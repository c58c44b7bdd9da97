"""The batch that the user's function has in hand, for what is called by the function."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from geo.errors import UsageError
from geo.ids import LedgerId
from geo.subscription.acks.ack_state import Epoch
from geo.subscription.acks.message_set import MessageSet


@dataclass(frozen=True, slots=True)
class InHand:
    """`messages` of a subscription, delivered in `epoch` as `rows`. `acked` is what was acknowledged by then, as far as is known here; `held`: the
    ledgers of the log here."""

    subscription: str
    """`topic/subscription`, as records have it."""
    rows: DataFrame
    epoch: Epoch
    messages: MessageSet
    acked: MessageSet
    held: Collection[LedgerId] = ()
    appended: dict[tuple[str, str | None], MessageSet] = field(default_factory=dict)
    """The messages that this call of the function has given to a sink, by sink and name of the append."""


_in_hand: ContextVar[InHand] = ContextVar("geo.in_hand")


@contextmanager
def handing_out(batch: InHand) -> Iterator[None]:
    """The user's function is called inside."""
    token = _in_hand.set(batch)
    try:
        yield
    finally:
        _in_hand.reset(token)


def in_hand() -> InHand:
    """The batch with which the user's function was called, in the thread in which it was called. Raises UsageError elsewhere."""
    try:
        return _in_hand.get()
    except LookupError:
        raise UsageError(
            "no batch of a subscription is in hand: call this in the function of a consumer, in the thread in which it was called."
        ) from None
