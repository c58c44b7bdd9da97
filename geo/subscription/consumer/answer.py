"""Answer of the user's function about a batch, derived from what it returns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import DayTimeIntervalType, NullType

from geo.errors import UsageError
from geo.log.topic_log import ID
from geo.sql_text import identifier
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.message_set_frames import message_set
from geo.subscription.consumer.delivery import Answer

REDELIVER_AFTER = "redeliver_after"
"""INTERVAL DAY TO SECOND, in what the user's function returns; rounded up to seconds, what has passed is at once. A column of the
topic's own of that name is no delay, as long as it is no such interval."""

LONGEST_S = 10 * 366 * 86_400
"""Ten years: a longer delay counts as this one."""

_NOTHING = "Nothing of this batch is acknowledged."


def answer_of(returned: object, messages: DataFrame, live: MessageSet, who: object) -> Answer:
    """Derives the answer from what was `returned` of `messages`, which are `live`; others it may acknowledge too. One that it names as done and with
    a delay is not done, and of two delays the shorter counts. Raises UsageError for what is no answer.
    """
    if returned is messages:
        return Answer(live)
    if returned is None:
        return Answer()
    if not isinstance(returned, DataFrame) or any(name not in returned.columns for name in ID):
        raise UsageError(
            f"{who}: the function returned {type(returned).__name__}; expected: its messages, a DataFrame of some of them "
            f"with the columns {', '.join(ID)}, or None for none. {_NOTHING}"
        )
    delay = _delay_column(returned, messages, who)
    rows = returned.select(*ID, *([identifier(delay)] if delay else [])).toArrow()
    if any(rows[name].null_count for name in ID):
        raise UsageError(f"{who}: the function returned rows without a message id. {_NOTHING}")
    if delay is None:
        return Answer(message_set(rows))
    delays = delays_of(rows.filter(rows[delay].is_valid()).rename_columns([*ID, REDELIVER_AFTER]))
    return Answer(message_set(rows.filter(rows[delay].is_null())) - MessageSet.union(delays.values()), delays)


def _delay_column(returned: DataFrame, messages: DataFrame, who: object) -> str | None:
    """The name of the column that has delays, whose case Spark does not tell apart. Raises UsageError for one that has none, and
    is not the topic's."""
    found = next((field for field in returned.schema if field.name.lower() == REDELIVER_AFTER), None)
    if found is None:
        return None
    if isinstance(found.dataType, (DayTimeIntervalType, NullType)):
        return found.name
    if any(name.lower() == REDELIVER_AFTER for name in messages.columns):
        return None
    raise UsageError(
        f"{who}: the function returned {found.name} as {found.dataType.simpleString()}; expected: an interval of days to seconds, "
        f"as make_dt_interval makes it, or NULL. {_NOTHING}"
    )


def delays_of(rows: pa.Table) -> dict[int, MessageSet]:
    """The messages of a table with the columns ID and `redeliver_after`, a duration in microseconds, by their shortest delay in
    seconds."""
    micros = rows[REDELIVER_AFTER].cast(pa.int64())
    micros = pc.min_element_wise(pc.max_element_wise(micros, 0), LONGEST_S * 1_000_000)
    seconds = pc.divide(pc.add(micros, 999_999), 1_000_000)
    shortest = rows.select(ID).append_column("delay", seconds).group_by(list(ID)).aggregate([("delay", "min")])
    shortest = shortest.sort_by("delay_min")
    runs = pc.run_end_encode(shortest["delay_min"].combine_chunks())
    delays, at = {}, 0
    for delay_s, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        delays[delay_s] = message_set(shortest.slice(at, end - at))
        at = end
    return delays
