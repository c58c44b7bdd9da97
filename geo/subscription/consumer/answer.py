"""What the user's function says of a batch, derived from what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import DayTimeIntervalType, NullType

from geo.errors import UsageError
from geo.log.topic_log import ID
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.message_set_frames import message_set

REDELIVER_AFTER = "redeliver_after"
"""INTERVAL DAY TO SECOND, in what the user's function returns; rounded up to seconds. A topic's own column of that name is none."""

_NOTHING = "Nothing of this batch is acknowledged."


@dataclass(frozen=True, slots=True)
class Answer:
    """What is done, and by delay in seconds what is to come again after it. No message is in two of these sets."""

    acked: MessageSet = field(default_factory=MessageSet)
    delays: Mapping[int, MessageSet] = field(default_factory=dict)


def answer_of(returned: object, messages: DataFrame, live: MessageSet, who: object) -> Answer:
    """What `returned` says of `messages`, which are `live`; it may name others. One that it names as done and with a delay is not
    done, and of two delays the shorter counts. Raises UsageError for what is no answer."""
    if returned is messages:
        return Answer(live)
    if returned is None:
        return Answer()
    if not isinstance(returned, DataFrame) or any(name not in returned.columns for name in ID):
        raise UsageError(
            f"{who}: the function returned {type(returned).__name__}; expected: its messages, a DataFrame of some of them "
            f"with the columns {', '.join(ID)}, or None for none. {_NOTHING}"
        )
    delayed = REDELIVER_AFTER in returned.columns and REDELIVER_AFTER not in messages.columns
    if delayed and not isinstance(kind := returned.schema[REDELIVER_AFTER].dataType, (DayTimeIntervalType, NullType)):
        raise UsageError(
            f"{who}: the function returned {REDELIVER_AFTER} as {kind.simpleString()}; expected: an interval of days to seconds, as "
            f"make_dt_interval makes it, or NULL. {_NOTHING}"
        )
    rows = returned.select(*ID, *([REDELIVER_AFTER] if delayed else [])).toArrow()
    if any(rows[name].null_count for name in ID):
        raise UsageError(f"{who}: the function returned rows without a message id. {_NOTHING}")
    if not delayed:
        return Answer(message_set(rows))
    delays = _delays(rows.filter(rows[REDELIVER_AFTER].is_valid()), who)
    return Answer(message_set(rows.filter(rows[REDELIVER_AFTER].is_null())) - MessageSet.union(delays.values()), delays)


def _delays(rows: pa.Table, who: object) -> dict[int, MessageSet]:
    micros = rows[REDELIVER_AFTER].cast(pa.int64())
    if pc.any(pc.less(micros, 0)).as_py():
        raise UsageError(f"{who}: the function returned a negative {REDELIVER_AFTER}. {_NOTHING}")
    seconds = pc.ceil(pc.divide(micros.cast(pa.float64()), 1e6)).cast(pa.int64())
    delays: dict[int, MessageSet] = {}
    taken = MessageSet()
    for delay_s in sorted(seconds.unique().to_pylist()):
        delays[delay_s] = message_set(rows.filter(pc.equal(seconds, delay_s))) - taken
        taken = taken | delays[delay_s]
    return delays
