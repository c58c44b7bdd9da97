"""Progress of a running Delta streaming query in a topic log, by its checkpoint folder. Reads only, beside the query.

What is there of a batch: `offsets/<batch>` from before it begins, `commits/<batch>` once it has ended. Spark lets old ones of both go, the newest
never. `metadata` has the query's id, from before its first batch on. A folder that was made again, or replaced by another query's, has another one.
"""

from __future__ import annotations

from dataclasses import dataclass

from geo.delta.files import SmallFiles
from geo.errors import RetryableError, UsageError
from geo.subscription.versions.source_offsets import read_ends, read_query_id

_TRIES = 3
"""The batch that was the newest may be one to be let go before its file is read."""


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """`finished`: the version up to which the query has processed all of the table; None: it has not finished any. `query_id`: the id that
    Spark gave the query."""

    finished: int | None
    query_id: str


def read_progress(files: SmallFiles, checkpoint: str, table_id: str) -> StreamProgress:
    """Reads the progress of the query in the table, by what is in the folder now.

    A version of which it has processed some files only does not count. What was before the version it began at counts: who started it there wanted
    that. Raises UsageError if there is no such checkpoint, or it is of another table, RetryableError if it cannot be read just now.
    """
    finished = _finished(files, checkpoint, table_id)
    return StreamProgress(finished, _query_id(files, checkpoint))  # read last: what was read before it is not of a later query


def _query_id(files: SmallFiles, checkpoint: str) -> str:
    file = f"{checkpoint}/metadata"
    try:
        if lines := files.lines(file):
            return read_query_id("\n".join(lines))
    except UsageError as error:
        raise UsageError(f"{file} {error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no text") from None
    raise RetryableError(f"{file}, which says whose checkpoint it is, is not there.")


def _finished(files: SmallFiles, checkpoint: str, table_id: str) -> int | None:
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
