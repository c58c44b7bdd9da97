"""How far a running Delta streaming query has come in a topic log, by its checkpoint folder. Reads only, beside the query.

What is there of a batch: `offsets/<batch>` from before it begins, `commits/<batch>` once it has ended. Spark lets old ones of both go,
the newest never.
"""

from __future__ import annotations

from geo.errors import RetryableError, UsageError
from geo.subscription.source_offsets import read_ends
from geo.tables.files import SmallFiles

_TRIES = 3
"""The batch that was the newest may be one to be let go before its file is read."""


def finished_by(files: SmallFiles, checkpoint: str, table_id: str) -> int | None:
    """The version up to which the query has processed all of the table; None: it has not finished any.

    A version of which it has processed some files only does not count. What was before the version it began at counts: who started it
    there wanted that. Raises UsageError if there is no such checkpoint, or it is of another table, RetryableError if it cannot be read
    just now.
    """
    for _ in range(_TRIES):
        names = files.plain_names(f"{checkpoint}/commits") or ()
        batches = [int(name) for name in names if name.isascii() and name.isdigit()]
        if not batches:
            if files.plain_names(f"{checkpoint}/offsets") is None:
                raise UsageError(
                    f"{checkpoint} is no checkpoint of a streaming query: it has no folder offsets. It is the checkpointLocation that the "
                    "query was started with, as its own host names it; start the query first."
                )
            return None
        file = f"{checkpoint}/offsets/{max(batches)}"
        try:
            if lines := files.lines(file):
                return read_ends("\n".join(lines)).finished(table_id)
        except UsageError as error:
            raise UsageError(f"{file} {error}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{file} is no text") from None
    raise RetryableError(f"{checkpoint}: the offsets of its newest batch, {max(batches)}, are not there.")
