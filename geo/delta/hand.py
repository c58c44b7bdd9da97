"""Files that a process that runs has at hand of a cluster on an object store, for who looks at it from elsewhere. They are the ends of its logs and
the rows of its small tables, each with the tag that the store gave it.

Nothing of it is taken for what is there now. Whoever looks asks the store for lists, as ever. A file from somebody's hand stands for the one there
only while a list tells its tag (`ObjectStore.get`. A file of rows while its log names it). So a hand that is old, or of a process that died, costs
requests and tells nothing wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import unquote

import pyarrow as pa

from geo.delta.commits import checksum_file, commit_file
from geo.delta.delta_log import seen_newest
from geo.delta.object_store import ObjectStore
from geo.delta.store import ReadPath

HAND_BYTES = 4 * 1024 * 1024
"""Bytes of all files in a hand. What is much alike is packed into a tenth of it and less."""

_COMMITS = 3
"""So many of the newest commits of a log are in it. A link's row names the newest one of its target, or one of those before it."""

_SCHEMA = pa.schema([("path", pa.string()), ("tag", pa.string()), ("content", pa.binary())])


class Hand:
    """Files that this process has at hand of one cluster, whose tables are at a location of a store."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, bytes]] = {}
        """Files that were in it last, of which the store may hold some no longer."""

    def packed(self, store: ObjectStore, location: str) -> bytes:
        found: dict[str, tuple[str, bytes]] = {}
        left = HAND_BYTES
        for path in _wanted(store, location, self._last):
            held = store.held.get(path) or self._last.get(path)
            if held is not None and len(held[1]) <= left:
                found[path] = held
                left -= len(held[1])
        self._last = found
        rows = [{"path": path, "tag": tag, "content": content} for path, (tag, content) in found.items()]
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), sink, compression="zstd", use_dictionary=False)
        return bytes(sink.getvalue())


def take(store: ObjectStore, packed: bytes) -> None:
    """Hold what is in somebody's hand. What is none, as of another version, is left."""
    import pyarrow.parquet as pq

    with suppress(pa.ArrowException, KeyError, TypeError, ValueError):
        for one in pq.read_table(pa.BufferReader(packed)).to_pylist():
            if store.held.get(one["path"]) is None:
                store.held.keep(one["path"], one["tag"], one["content"])


def _wanted(store: ObjectStore, location: str, last: dict[str, tuple[str, bytes]]) -> Iterator[str]:
    """The paths of what a look at the cluster reads, those of system tables first."""
    logs = [(log, newest) for log, newest in seen_newest() if log.store is store and log.location.startswith(f"{location}/")]
    for log, newest in sorted(logs, key=lambda one: (not _is_system(one[0], location), one[0].location)):
        checksum = f"{log}/{checksum_file(newest)}"
        yield checksum
        yield from (f"{log}/{commit_file(version)}" for version in range(newest, max(-1, newest - _COMMITS), -1))
        if _is_system(log, location) and (held := store.held.get(checksum) or last.get(checksum)) is not None:
            with suppress(ValueError, KeyError, TypeError):
                yield from (str(log.parent / unquote(file["path"])) for file in json.loads(held[1])["allFiles"])


def _is_system(log: ReadPath, location: str) -> bool:
    return log.location.startswith(f"{location}/system")
