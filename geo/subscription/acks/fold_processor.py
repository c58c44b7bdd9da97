"""What the folding query keeps of each subscription in Spark's state, and what it emits of the records that came: see `fold_query.py`. What a
record means is decided in `fold.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from geo.ids import LedgerId
from geo.subscription.acks.acks_topic import ends_as_text, received
from geo.subscription.acks.fold import Fold
from geo.subscription.acks.forgetting import beginning_of
from geo.subscription.acks.record import decode_all, encode_all, is_newer

FOLD_ROWS = 10_000
"""Records of a subscription that are merged at once: a first batch has all of the log."""

OUTPUT = "topic STRING, subscription STRING, state BINARY, named_on STRING, began STRING, folded STRING, refused STRING"
"""The columns that `Processor` emits."""


class Processor(StatefulProcessor):
    """What comes of one subscription (key: topic, subscription). Emits whenever records came what they tell. It keeps where the
    subscription begins, which says of what epoch records count, and not what is acknowledged: that is in its cursor.

    `folded` says of each ledger of records up to which entry they were told, `began` the same of before. It never passes a record that a
    newer program wrote: readers find that one in the log until one of them can read it.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("subscription", "state BINARY, folded STRING, refused STRING, unread STRING")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # Spark's names
        topic, subscription = key
        name = f"{topic}/{subscription}"
        kept = self._kept.get() or (None, "{}", "{}", "{}")
        before = {} if kept[0] is None else {name: beginning_of(decode_all(bytes(kept[0]), limited=False))}
        fold = Fold(self._cluster, before, days={})
        folded: dict[str, int] = json.loads(kept[1])
        unread: dict[str, int] = json.loads(kept[3])
        while batch := list(islice(rows, FOLD_ROWS)):
            for row in batch:
                ledger, entry = str(LedgerId(row["origin"], row["ledger_id"])), row["entry_id"]
                if is_newer(row["payload"]):
                    unread[ledger] = min(entry, unread.get(ledger, entry))
                end = max(entry, folded.get(ledger, -1))
                folded[ledger] = min(end, unread[ledger] - 1) if ledger in unread else end
            fold.add(received(row.asDict()) for row in batch)
        refused = json.loads(kept[2])
        for reason, count in fold.refused.items():
            refused[reason.value] = refused.get(reason.value, 0) + count
        told = fold.known.get(name)
        ends, reasons = json.dumps(folded, sort_keys=True), json.dumps(refused, sort_keys=True)
        if told is not None or unread:  # what no program will ever read leaves nothing behind
            beginning = None if told is None else encode_all(beginning_of(told), limited=False)
            self._kept.update((beginning, ends, reasons, json.dumps(unread, sort_keys=True)))
        yield Row(
            topic=topic, subscription=subscription, state=None if told is None else encode_all(told, limited=False),
            named_on=json.dumps(ends_as_text((fold.days or {}).get(name, {}))), began=kept[1], folded=ends, refused=reasons,
        )  # fmt: skip

    def close(self) -> None:
        pass
