"""Code by which a consumer of versions reads a topic's log, to be pasted. A plain Delta stream, a dbt model or a SQL job needs it to survive
expiry, and to see messages alone. Pure.
"""

from __future__ import annotations

import json

VIEW_SUFFIX = "__messages"
"""End of the name of a topic's view in a catalog. No topic's table is called so: its name has `__` twice."""

OPTIONS = {"ignoreDeletes": "true"}
"""Expiry deletes whole days, at which a Delta stream stops without this. Changes of messages still stop it, as they should."""

MESSAGES = "marker IS NULL"
"""Rows that are no messages are the protocol's own."""

WHY = (
    "ignoreDeletes: days that have expired are deleted. marker IS NULL: rows of delta-geo's own are no messages. To pass a `geo erase` put "
    "skipChangeCommits in the place of ignoreDeletes until the stream is behind it."
)


def stream_code(table: str, *, by_path: bool, start: int | None = None) -> str:
    """A streaming DataFrame of a log's messages, as a Python expression over `spark`. `start`: the first version that is read; None:
    the table as it is, then what comes."""
    options = {**OPTIONS, **({} if start is None else {"startingVersion": str(start)})}
    said = "".join(f".option({json.dumps(name)}, {json.dumps(value)})" for name, value in options.items())
    load = "load" if by_path else "table"
    return f'spark.readStream.format("delta"){said}.{load}({json.dumps(table)}).where({json.dumps(MESSAGES)})'


def batch_code(table: str, *, by_path: bool) -> str:
    """A DataFrame of a log's messages as it is now, as a Python expression over `spark`."""
    load = "load" if by_path else "table"
    return f'spark.read.format("delta").{load}({json.dumps(table)}).where({json.dumps(MESSAGES)})'


def pandas_code(path: str) -> str:
    """A pandas DataFrame of a log's messages as it is now, as a Python expression. A store's keys are left to who reads (`storage_options`)."""
    return f"deltalake.DeltaTable({json.dumps(path)}).to_pandas().query({json.dumps('marker.isna()')})"


def query(sql_name: str) -> str:
    """A log's messages as SQL."""
    return f"SELECT * EXCEPT (marker) FROM {sql_name} WHERE {MESSAGES}"
