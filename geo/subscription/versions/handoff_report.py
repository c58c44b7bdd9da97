"""Messages that a consumer gets twice, and those that it never gets, if it goes on in another cluster's log from a version. It has finished its own
cluster's log up to a version. Pure.

PIP-33 gives such a version: all that was routed to both clusters and is before it there was finished here. So nothing of that is skipped. What only
went there, or had expired on its way, is neither in what was finished nor in what comes: it is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from geo.ids import LedgerId
from geo.subscription.acks.message_set import MessageSet


class WhyUnfinished(str, Enum):
    """The reason why a message that is before the start was not finished."""

    NOT_ADDRESSED = "addressed to others alone"
    NO_WAY = "of a cluster whose messages no link brings there"
    LATER = "came there after what was finished"
    ABSENT = "routed there and not in what was finished: expired on the way or since, or from before its link began"


@dataclass(frozen=True, slots=True)
class LogAt:
    """The messages of a log at a version, and the `replicate_to` of its ledgers that have one."""

    messages: MessageSet
    aims: Mapping[LedgerId, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class HandoffReport:
    """`repeated`: messages at or after the start that were finished, or may have been. `unseen`: those before it that were not, by
    why."""

    repeated: MessageSet
    unseen: Mapping[WhyUnfinished, MessageSet]


def handoff_report(
    source: str, reached_by: Collection[str], finished: MessageSet | None, held: MessageSet, before: LogAt, after: MessageSet
) -> HandoffReport:
    """Derives both. `reached_by`: the clusters whose messages come to `source`, itself among them. `finished`: what its consumer has finished; None:
    that cannot be read. `held`: all that the source holds now. `before` and `after`: what the target has before the start, and since.

    Where `finished` is not known all that follows may come again. Of what is before, only that is known which the rule sends nowhere near the source.
    """
    unseen: dict[WhyUnfinished, list[MessageSet]] = {}
    left = before.messages if finished is None else before.messages - finished
    for ledger, ranges in left.ledgers.items():
        one = MessageSet({ledger: ranges})
        aims = before.aims.get(ledger)
        if ledger.origin not in reached_by:
            unseen.setdefault(WhyUnfinished.NO_WAY, []).append(one)
        elif ledger.origin != source and aims is not None and source not in aims:
            unseen.setdefault(WhyUnfinished.NOT_ADDRESSED, []).append(one)
        elif finished is not None:
            unseen.setdefault(WhyUnfinished.LATER, []).append(one & held)
            if ledger.origin != source:  # its own messages were there before they were elsewhere
                unseen.setdefault(WhyUnfinished.ABSENT, []).append(one - held)
    united = {why: MessageSet.union(unseen.get(why, ())) for why in WhyUnfinished}
    return HandoffReport(after if finished is None else after & finished, {why: found for why, found in united.items() if found})
