"""Tags a row of a source of ours. The tags are where it stands in its source, whether it is published already, whether it can be, and its ledger.
Blocks of Arrow in, blocks of Arrow out.

The reasons for which a row is refused stand in geo.log.admission, as SQL; this says the same, and a test holds the two equal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from geo.log.admission import ERROR, MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, Routes
from geo.log.numbering.holding import KEY, OFFSET_PART, TEXT_PART
from geo.log.numbering.order import begins_of
from geo.log.source_identity import HASH, PUBLISHED, SOURCE

_MOST_OF_A_BYTE = 6
"""Bytes that a byte of text becomes in JSON at most."""


@dataclass(frozen=True)
class Tagging:
    """`source` and `offset` are the columns (string, int64) that place a row, `columns` those of a message. `ends` are the last
    published offsets by source, `routes` the ways to the other clusters."""

    source: str
    offset: str
    columns: Sequence[str]
    ends: Mapping[str, int]
    routes: Routes

    def tagged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """`rows` with SOURCE, HASH, ERROR, PUBLISHED, KEY and the offset. They may have ERROR already: a reason not to publish that row."""
        count, sources, offsets = len(rows), rows[self.source], rows[self.offset]
        columns = {name: rows[name] for name in self.columns}
        aims = self._aims(rows["replicate_to"]) if "replicate_to" in columns and rows["replicate_to"].null_count < count else None
        if aims is not None:
            columns["replicate_to"] = pa.array(aims, pa.list_(pa.string()))
        published, keys = [], []
        runs = begins_of([sources])
        for first, end in pairwise(runs):
            source = sources[first].as_py()
            published.append(pc.less_equal(offsets.slice(first, end - first), self.ends.get(source, -1)))
            own = [None] if aims is None else aims[first:end]
            codes = {key: _code(source, key) for key in set(map(_as_key, own))}
            keys += [codes[None]] * (end - first) if aims is None else [codes[_as_key(one)] for one in own]
        return pa.record_batch(
            {
                SOURCE: sources,
                HASH: pa.repeat(pa.scalar(0, pa.int64()), count),
                ERROR: self._errors(rows, columns, aims),
                PUBLISHED: pa.concat_arrays(published),
                KEY: pa.array(keys, pa.int64()),
                f"{OFFSET_PART}0": offsets,
                f"{TEXT_PART}0": offsets.cast(pa.string()),
                **columns,
            }
        )

    def _aims(self, given: pa.Array) -> list[list[str | None] | None]:
        """Sorted, without repeats and without the own cluster, so that equal aims share a ledger (L4, L5)."""
        return [
            None if aims is None else _as_spark_sorts(name for name in aims if name != self.routes.cluster)
            for aims in given.to_pylist()
        ]

    def _errors(self, rows: pa.RecordBatch, columns: Mapping[str, pa.Array], aims: Sequence[Any] | None) -> pa.Array:
        given = rows[ERROR].to_pylist() if ERROR in rows.schema.names else [None] * len(rows)
        for at in self._suspects(columns, aims):
            if given[at] is None:
                body = [columns[name][at].as_py() for name in ("payload", "key", "properties")]
                given[at] = _too_large(*body) or (None if aims is None or aims[at] is None else self.routes.error(aims[at]))
        return pa.array(given, pa.string())

    def _suspects(self, columns: Mapping[str, pa.Array], aims: Sequence[Any] | None) -> Iterable[int]:
        """The rows that may be refused."""
        if aims is not None:
            return range(len(aims))
        header = pc.fill_null(pc.binary_length(columns["key"]), 0).cast(pa.int64())
        header = pc.add(header, pc.multiply(_bytes_of(columns["properties"]), _MOST_OF_A_BYTE))
        heavy = pc.greater(pc.fill_null(pc.binary_length(columns["payload"]), 0), MAX_PAYLOAD_BYTES)
        found: list[int] = pc.indices_nonzero(pc.or_(heavy, pc.greater(header, MAX_HEADER_BYTES))).to_pylist()
        return found


def _too_large(payload: bytes | None, key: str | None, properties: Sequence[tuple[str, str | None]] | None) -> str | None:
    if payload is not None and len(payload) > MAX_PAYLOAD_BYTES:
        return f"payload has {len(payload)} bytes, the limit is {MAX_PAYLOAD_BYTES}"
    text = "" if properties is None else json.dumps(dict(properties), ensure_ascii=False, separators=(",", ":"))
    header = len((key or "").encode()) + len(text.encode())
    return f"key and properties have {header} bytes, the limit is {MAX_HEADER_BYTES}" if header > MAX_HEADER_BYTES else None


def _bytes_of(properties: pa.MapArray) -> pa.Array:
    """Bytes of the texts of each row's map, and some for what is between them."""
    each = pc.add(*(pc.fill_null(pc.binary_length(part), 4).cast(pa.int64()) for part in (properties.keys, properties.items)))
    sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(pc.add(each, 6))])
    places = properties.offsets  # into all there is, also of a slice
    return pc.subtract(sums.take(places.slice(1)), sums.take(places.slice(0, len(places) - 1)))


def _as_spark_sorts(names: Iterable[str | None]) -> list[str | None]:
    """Sort as Spark does: NULL comes last."""
    return sorted(dict.fromkeys(names), key=lambda name: (name is None, name or ""))


def _as_key(aims: Sequence[str | None] | None) -> tuple[str | None, ...] | None:
    return None if aims is None else tuple(aims)


def _code(source: str, aims: tuple[str | None, ...] | None) -> int:
    """A ledger key as a number, in every process the same."""
    digest = blake2b(json.dumps([source, aims]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
