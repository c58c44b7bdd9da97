"""Numbering by lists, of the few rows of a bytes topic's batch that were fetched: Spark's jobs would be most of the time."""

from __future__ import annotations

import pyarrow as pa

from geo.errors import UsageError
from geo.log.admission import ERROR
from geo.log.ledgers import Batch, LedgerKey
from geo.log.numbering.tallies import REPEATED, TEXT, Common, Rejected, Tally, merged, ordered
from geo.log.source_identity import HASH, OFFSET, PUBLISHED, SOURCE, Identity

TAKEN = (SOURCE, OFFSET, TEXT, HASH, ERROR, PUBLISHED, "replicate_to", "event_time", "key", "payload", "properties")
"""The columns of the rows that are fetched."""


class OnDriver:
    """By lists, once the rows are here."""

    def __init__(self, head: pa.Table, identity: Identity, common: Common) -> None:
        self._head, self._identity, self._common = head, identity, common
        listed = head.select([SOURCE, OFFSET, HASH, ERROR, PUBLISHED, "replicate_to", "key", TEXT]).to_pylist()
        self._keys = [LedgerKey.of(row[SOURCE], row["replicate_to"]) for row in listed]
        self._offsets = [ordered(row[OFFSET].values()) for row in listed]
        self._rows = listed

    def tallies(self) -> list[Tally]:
        return merged(
            (Tally(key, row[ERROR] is not None, row[PUBLISHED], 1, tuple(row[TEXT].values()), row[HASH]), offset)
            for key, row, offset in zip(self._keys, self._rows, self._offsets, strict=True)
        )

    def rejected(self, most: int | None = None) -> list[Rejected]:
        """The new rows that are bad, all or some of them."""
        bad = [row for row in self._rows if row[ERROR] is not None and not row[PUBLISHED]]
        return [Rejected(row[SOURCE], tuple(row[TEXT].values()), row[ERROR], row["key"]) for row in bad[:most]]

    def entries(self, batch: Batch) -> pa.Table:
        """The new rows as they stand in the log. Raises an error for which `is_repeated` if two are one."""
        spans = {span.key: span for span in batch.spans}
        new = [at for at, row in enumerate(self._rows) if row[ERROR] is None and not row[PUBLISHED]]
        new.sort(key=lambda at: (spans[self._keys[at]].ledger_id, self._offsets[at]))
        ids: list[int] = []
        entry_ids: list[int] = []
        for before, at in zip([None, *new], new, strict=False):
            span = spans[self._keys[at]]
            same = before is not None and self._keys[before] == self._keys[at]
            if same and self._identity.unique and self._offsets[before or 0] == self._offsets[at]:
                raise UsageError(REPEATED)
            ids.append(span.ledger_id)
            entry_ids.append(entry_ids[-1] + 1 if same else span.first)
        rows, count = self._head.take(new), len(new)
        filled = {
            "ledger_id": pa.array(ids, pa.int64()),
            "entry_id": pa.array(entry_ids, pa.int64()),
            "marker": pa.nulls(count, pa.string()),
            **{name: pa.repeat(value, count) for name, value in self._common.of(batch).items()},
        }
        names = self._common.columns.names
        return pa.table({name: filled[name] if name in filled else rows[name] for name in names})
