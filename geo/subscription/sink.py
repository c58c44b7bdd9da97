"""A Delta table to which a consumer appends each message once: rows, and which messages they are of, in one commit.

The argument: the newest commit of the subscription in the sink says which messages the sink has. `append_once` reads it, leaves those out, and
commits the others under the next number of a Delta transaction of the subscription. Delta commits a number once: if somebody committed meanwhile
(another region, a stale consumer), nothing of this lands, and it begins again. So a death at any point, a redelivery, and a consumer in another
region that lacks the last acknowledgements repeat nothing. The messages are evaluated once: which of them count as done, and which become rows,
cannot differ.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from random import uniform

from pyspark.sql import DataFrame, SparkSession

from geo.crash import CrashPoint, reach
from geo.delta.appending import append_frame
from geo.delta.commits import Commit
from geo.delta.driver import Driver
from geo.delta.spark_commits import sweep_table
from geo.delta.table import Table
from geo.disk import local_path
from geo.errors import RetryableError, UsageError
from geo.log.topic_log import ID
from geo.names import check_append
from geo.now import now_us
from geo.subscription.acks.ack_state import Epoch
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.message_set_frames import among, message_set
from geo.subscription.consumer.in_hand import in_hand
from geo.subscription.sink_record import SINK_KEY, SinkRecord, newest_of
from geo.text import counted

log = logging.getLogger(__name__)

_TRIES_S, _PAUSE_S = 30.0, 0.5
"""Seconds that others of the same subscription may come between, and the longest pause after one did."""

_PAGES = (8, 64, 512)
"""Commits that are looked at at once for the newest of the subscription, at first, next, and from then on."""

_DAY_US = 86_400 * 1_000_000
_NUMBERS_OF_A_DAY = 2**32
"""Numbers of a day. A sink's log may not begin at its beginning any more. Then a subscription without a commit in it begins at the first number of the
day: above all that the log may have lost.
"""


def append_once(
    messages: DataFrame,
    table: str,
    rows: Callable[[DataFrame], DataFrame] = lambda messages: messages,
    *,
    name: str | None = None,
) -> DataFrame:
    """Append what `rows` makes of the messages to a Delta table. Each message is in it once per epoch, after kills, redeliveries and a move to
    another region. Call it in the function of a consumer, with the messages that it was given or some of them, and return what it returns. They are
    done. Other messages are not, also where the table that chose them changes meanwhile.

    `table` is a path or a catalog name; the first batch makes it. `rows` gets those of the messages that the sink does not have, and returns the
    rows to append, of any columns. A message may become none or many. Two appends of the same messages to one sink need a `name` each, lower-case:
    each message is in the sink once by each name. Rows that are made of the sink itself are made of what it had before. Two subscriptions, or two
    names, that append at the same moment do not see each other. Limits: what the sink has is told by the userMetadata of its commits, up to 256 kB
    of ranges of ids. An older ledger than that counts as not there, which matters only in a region that lacks its acknowledgements. And the log of
    the sink must keep its commits (delta.logRetentionDuration, 30 days) longer than such a region lacks them.

    Raises UsageError outside of a consumer's function and for a message that the same call of the function has appended by that name. Raises
    InvalidNameError. Raises UnsafeError if the sink was restored to a version that is not recorded. Raises RetryableError if
    others commit for the same subscription all the time, and for a batch of before a reset.
    """
    batch = in_hand()
    whole = messages is batch.rows
    # A local checkpoint: what is lost of it is an error, where a cache would be evaluated again.
    messages = messages if whole else messages.localCheckpoint()
    given = batch.messages if whole else message_set(messages.select(*ID).toArrow()) & batch.messages
    who = batch.subscription if name is None else f"{batch.subscription} {check_append(name)}"
    sink = _Sink(messages.sparkSession, table, who)
    deadline = time.monotonic() + _TRIES_S
    while time.monotonic() < deadline:
        last = sink.last()
        if twice := given & batch.appended.get((sink.identity, name), MessageSet()):
            raise UsageError(
                f"{table}: append_once was called before with {counted(twice.size, 'message')} of this batch: {twice!s:.200}. The second "
                "call would append nothing. Append all rows of a message in one call, or give each call a name: append_once(…, name='lines')."
            )
        if last.is_later_than(batch.epoch):
            raise RetryableError(
                f"{table}: has messages of {who} that were delivered in epoch {last.epoch}, this batch was in {batch.epoch}: "
                "the subscription was reset. Nothing was appended. Run the consumer again, it begins where the reset says. Where another "
                "subscription of this name, of one region only, appends to the same table, give append_once a name: append_once(…, name='eu')."
            )
        there = given & last.messages if last.epoch == batch.epoch else MessageSet()
        fresh = given - there
        if there:
            log.info("%s: %s of %s are there already", table, counted(there.size, "message"), who)
        made = rows(messages if whole and not there else among(messages, fresh)) if fresh else None
        if made is None or sink.append(made, last.after(batch.epoch, fresh, batch.acked, secrets.token_hex(8), batch.held)):
            key = (sink.identity, name)
            batch.appended[key] = batch.appended.get(key, MessageSet()) | given
            return messages
        time.sleep(uniform(0.0, _PAUSE_S))  # noqa: S311  # so that many do not meet again
    raise RetryableError(f"{table}: other consumers of {who} committed at the same moments for {_TRIES_S:.0f} s.")


_swept: set[str] = set()
"""Sinks that this process has swept: once each, since only what is a day old goes."""


class _Sink:
    """The sink as one call sees it."""

    def __init__(self, spark: SparkSession, name: str, subscription: str) -> None:
        by_path = "/" in name
        local = local_path(name) if by_path else None
        lock = None if local is None else local.parent / f".{local.name}.geo-lock"
        self._table, self._subscription = Table(Driver.of(spark), name, by_path=by_path, lock=lock), subscription
        self._name = self.identity = name
        """The table's id as of the last look; its name while there is no table."""
        self._was_used = False
        """A number was used already of which the log has no commit: the table is a copy of another one."""

    def last(self) -> SinkRecord:
        """Record of the subscription in the sink, and the number of the subscription's newest commit."""
        found = newest_of(self._commits(), self._subscription)
        if found is not None:
            return found
        is_whole = not self._table.exists() or (self._table.has_commit(0) and not self._was_used)
        number = 0 if is_whole else now_us() // _DAY_US * _NUMBERS_OF_A_DAY
        return SinkRecord(self._subscription, Epoch(), MessageSet(), number, "")

    def append(self, rows: DataFrame, record: SinkRecord) -> bool:
        """Appends the rows. Returns whether they landed, or there was nothing to append. False: another commit of the subscription came first."""
        if not self._table.by_path and not self._table.exists():
            append_frame(
                self._table, rows.limit(0)
            )  # the commit that makes a table of a catalog would say nothing of the messages
        if self._name not in _swept:
            _swept.add(self._name)
            sweep_table(self._table)
        reach(CrashPoint.SINK_BEFORE_APPEND)
        transaction = (f"{SINK_KEY} {self._subscription}", record.number)
        append_frame(self._table, rows, record.encode(), transaction)  # what a number was used for already does nothing
        reach(CrashPoint.SINK_AFTER_APPEND)
        for commit in self._commits():
            found = SinkRecord.decode(commit.user_metadata)
            if found is not None and found.subscription == self._subscription and found.number <= record.number:
                if found.number == record.number:
                    return found.token == record.token
                break
        if rows.isEmpty():
            return True
        self._was_used = True
        return False

    def _commits(self) -> Iterator[Commit]:
        """Newest first."""
        seen = self._table.snapshot()
        self.identity, last = (self._name, -1) if seen is None else (seen.table_id, seen.version)
        for page in chain(_PAGES, repeat(_PAGES[-1])):
            if last < 0:
                return
            first = max(0, last - page + 1)
            yield from reversed(list(self._table.commits(first, last, only=(SINK_KEY,))))
            last = first - 1
