"""Files of a source's log that its target may take as they are, byte by byte: which, and copying them beside its own.

A replica row equals its origin's, column by column, so a file of which every row crosses and none is there yet needs no decoding.
Of tables of plain files on stores that this process writes: of anything else rows are read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geo.crash import CrashPoint, reach
from geo.delta.data_file import DataFile
from geo.delta.delta_state import DeltaState
from geo.delta.local_state import state_to_follow
from geo.delta.predicate import IsNull, Predicate, may_hold
from geo.delta.predicate_arrow import mask
from geo.delta.row_files import Added, Written, new_name, remove_files, statistics, write_out
from geo.delta.scan import data_files
from geo.delta.store import AT_ONCE, ReadPath, ReadStore, WritePath, parquet, read_each
from geo.delta.table import Table
from geo.errors import DamagedError, UnsafeError
from geo.ids import LEDGER_ID_LIMIT, LedgerId
from geo.replication.gaps import Gap

_READ = ("origin", "ledger_id", "entry_id", "publish_time", "marker", "replicate_to")

_ROWS = "Leave --mode out, and rows are read."

_CHECKSUM_S = 2.0
"""A commit's checksum comes some milliseconds after it; a table without one is another program's."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A file of a source that may be taken whole: entries `first` to `last` of a ledger."""

    path: ReadPath
    ledger: LedgerId
    first: int
    last: int
    partition: tuple[tuple[str, str], ...]
    size: int
    statistics: str

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Ahead:
    """Knowledge of a source's files before there is a target. It has those of a version, and of some of them what becomes of each in a table that
    is as the source is.
    """

    version: int
    files: Sequence[DataFile]
    judged: Mapping[ReadPath, Whole | None]
    state: DeltaState

    def of(self, file: DataFile, target: DeltaState) -> tuple[Whole | None] | None:
        """Finds what becomes of a file in this target, which lacks all of it; None: that is not known."""
        mine, other = ((one.schema, one.partition_by, one.statistics_of) for one in (self.state, target))
        return (self.judged[file.path],) if mine == other and file.path in self.judged else None


def look_ahead(source: Table, version: int, wanted: Predicate) -> Ahead:
    """Read the files of `source` at `version`, as many as are read at once. Raises UnsafeError where files may not be copied."""
    state = plain_state(source, "source")
    files = _listed(source, version)
    first = files[:AT_ONCE]
    judged = read_each(_store_of(source), first, lambda file: _judged(file, state, wanted, None))
    return Ahead(version, files, dict(zip((one.path for one in first), judged, strict=True)), state)


def whole_files(source: Table, version: int, target: Table, wanted: Predicate, found: Sequence[Gap]) -> list[Whole]:
    """The files of `source` at `version` all of whose rows are wanted and lie in a gap of the target. Raises UnsafeError
    where files may not be copied."""
    state = plain_state(target, "target")
    gaps: dict[LedgerId, list[Gap]] = {}
    for gap in found:
        if not gap.compare and not gap.repeated:
            gaps.setdefault(gap.ledger, []).append(gap)
    return _in_order(_each_judged(source, version, state, wanted, gaps))


def all_files(source: Table, version: int, target: Table, wanted: Predicate, ahead: Ahead | None = None) -> list[Whole] | None:
    """The files of `source` at `version` if every row of each is wanted: a target without any lacks just these. None: that
    is not so. Raises UnsafeError where files may not be copied. `ahead`: what is known of them already."""
    state, taken = plain_state(target, "target"), list[Whole | None]()
    for one in _each_judged(source, version, state, wanted, None, ahead):
        taken.append(one)
        if one is None:
            return None
    found = _in_order(taken)
    return found if len(found) == len(taken) else None


def _each_judged(
    source: Table,
    version: int,
    state: DeltaState,
    wanted: Predicate,
    gaps: Mapping[LedgerId, Sequence[Gap]] | None,
    ahead: Ahead | None = None,
) -> Iterator[Whole | None]:
    """The files of `source` at `version`, as `_judged`; None also of one that is gone, of which Spark will say so."""

    def judged(file: DataFile) -> Whole | None:
        known = None if ahead is None else ahead.of(file, state)
        return _judged(file, state, wanted, gaps) if known is None else known[0]

    if ahead is not None and ahead.version == version:
        listed = ahead.files
    else:
        plain_state(source, "source")
        listed = _listed(source, version)
    return read_each(_store_of(source), listed, judged)


def _listed(source: Table, version: int) -> list[DataFile]:
    listed = data_files(source, version)
    if listed is None or source.log_folder is None:
        raise UnsafeError(f"{source}: its files cannot be listed without Spark at version {version}. {_ROWS}")
    return listed


def _store_of(table: Table) -> ReadStore | None:
    return None if table.log_folder is None else table.log_folder.store


def _in_order(chosen: Iterable[Whole | None]) -> list[Whole]:
    taken: list[Whole] = []
    for one in sorted((one for one in chosen if one is not None), key=lambda one: (one.ledger, one.first)):
        # An entry that is there twice is looked at as a row.
        if not taken or taken[-1].ledger != one.ledger or taken[-1].last < one.first:
            taken.append(one)
    return taken


def plain_state(table: Table, what: str) -> DeltaState:
    """The newest version of a table of plain files on a local disk or on S3, there as `state_to_follow`. Between a commit and its
    checksum it is waited for. Raises UnsafeError of another one; `what` it is."""
    if table.log_folder is None:
        raise UnsafeError(f"the {what} {table} is neither on a local disk nor on S3, where alone files are copied. {_ROWS}")
    deadline = time.monotonic() + _CHECKSUM_S
    while (state := state_to_follow(table)) is None or state.is_mapped:
        if time.monotonic() > deadline:
            raise UnsafeError(
                f"the {what} {table} uses more of Delta's protocol than plain files, or was last written by another program. {_ROWS}"
            )
        time.sleep(0.05)
    return state


def _judged(file: DataFile, state: DeltaState, wanted: Predicate, gaps: Mapping[LedgerId, Sequence[Gap]] | None) -> Whole | None:
    """The file, if it may be taken whole: by what the log says of it, then by the columns that this does not tell of. `gaps`: what
    the target lacks; None: everything."""
    origin, ledger_id = file.constant("origin"), file.constant("ledger_id")
    first, last, rows = (file.statistics.get(name, -1) for name in ("min.entry_id", "max.entry_id", "num_records"))
    if origin is None or not may_hold(wanted, file.statistics) or ledger_id is None or not 0 < ledger_id < LEDGER_ID_LIMIT:
        return None
    ledger = LedgerId(origin, ledger_id)
    if first < 0 or rows != last - first + 1:
        return None
    if gaps is not None and not any(gap.first <= first and last <= gap.last for gap in gaps.get(ledger, ())):
        return None
    inside = {field.name: field for field in state.schema if field.name not in state.partition_by}
    # Spark writes the partition's columns into the files too; readers take them from the log.
    opened = parquet(file.path)
    schema = pa.schema([field for field in _told(opened) if field.name not in state.partition_by])
    if not _fits(schema, inside):
        return None
    read = [name for name in schema.names if name in state.statistics_of or name in _READ]
    try:
        columns = opened.read(columns=read)
    except OSError as error:
        raise DamagedError(f"{file.path}: {error}. Bring it back from a copy.") from None
    if not _are_wanted(columns, ledger, first, last, wanted):
        return None
    partition = tuple((name, file.partition(name)) for name in state.partition_by)
    for name, value in partition:
        day = pa.scalar(value).cast(pa.date32())
        columns = columns.append_column(name, pa.repeat(day, len(columns)))
    kinds = [pa.field(name, state.schema.field(name).type) for name in columns.column_names]
    told = statistics(columns.cast(pa.schema(kinds), safe=False), state.statistics_of)
    return Whole(file.path, ledger, first, last, partition, int(file.statistics.get("size_bytes") or 0), told)


def _told(opened: pq.ParquetFile) -> pa.Schema:
    """A file's columns. A time that is kept as INT96 is an instant, which Arrow leaves out."""
    parts = [opened.schema.column(at) for at in range(len(opened.schema))]
    old = {part.path for part in parts if part.physical_type == "INT96"}
    return pa.schema([f.with_type(pa.timestamp("us", "UTC")) if f.name in old else f for f in opened.schema_arrow])


def _fits(schema: pa.Schema, columns: Mapping[str, pa.Field]) -> bool:
    """Tells whether a file has columns of the table alone, each of its type, and all that must have a value. Times may be of any unit, which readers
    know, and are instants in both or in neither.
    """
    if not set(schema.names) <= columns.keys() or not set(_READ) <= set(schema.names):
        return False
    if any(not field.nullable and field.name not in schema.names for field in columns.values()):
        return False
    return all(_is_kept_alike(field.type, columns[field.name].type) for field in schema)


def _is_kept_alike(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(wanted):
        return (kind.tz is None) == (wanted.tz is None)
    return _plain(kind) == _plain(wanted)


def _plain(kind: pa.DataType) -> str:
    """A type without the names of a list's items or a map's entries, of which writers have their own."""
    if pa.types.is_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)}, {_plain(kind.item_type)}>"
    return str(kind)


def _are_wanted(columns: pa.Table, ledger: LedgerId, first: int, last: int, wanted: Predicate) -> bool:
    """Tells whether every row of a file is wanted, and they are each entry of the ledger from `first` to `last` once. A row without a time may be,
    but to when it belongs nobody knows. One that names its targets goes by rows.
    """
    for name, value in (("origin", ledger.origin), ("ledger_id", ledger.ledger_id)):
        if pc.unique(columns[name]).to_pylist() != [value]:
            return False
    entries = pc.unique(columns["entry_id"])
    ends = pc.min_max(entries)
    if len(columns) != len(entries) or entries.null_count or (ends["min"].as_py(), ends["max"].as_py()) != (first, last):
        return False
    return bool(mask(wanted & ~IsNull("publish_time") & IsNull("replicate_to"), columns).true_count == len(columns))


def without(found: Iterable[Gap], taken: Collection[Whole]) -> Iterator[Gap]:
    """The rest of the gaps once the files are there."""
    for gap in found:
        first = gap.first
        inside = [one for one in taken if one.ledger == gap.ledger and gap.first <= one.first and one.last <= gap.last]
        for one in sorted(inside, key=lambda one: one.first):
            if first < one.first:
                yield Gap(gap.ledger, first, one.first - 1, gap.compare)
            first = one.last + 1
        if first <= gap.last:
            yield Gap(gap.ledger, first, gap.last, gap.compare)


def copied(files: Sequence[Whole], target: Table, state: DeltaState) -> Written:
    """Copies of the files in the folder of the target, which is in this state; no commit has added them yet. Raises OSError and
    DamagedError, and none is there then."""
    assert target.log_folder is not None, "it has a state"
    folder = target.log_folder.parent
    new = [Added(new_name(dict(one.partition)), dict(one.partition), one.size, one.rows, 0, one.statistics) for one in files]
    added = list[Added]()
    try:
        for at, copy in enumerate(read_each(folder.store, zip(files, new, strict=True), lambda both: _copied(*both, folder))):
            if copy is None:
                raise FileNotFoundError(str(files[at].path))
            reach(CrashPoint.BACKFILL_FILE_COPIED)
            added.append(copy)
        write_out(folder, added)
    except BaseException:
        remove_files(folder, new)
        raise
    return Written.of(added, state)


def _copied(file: Whole, new: Added, folder: WritePath) -> Added:
    folder.store.copy(file.path, str(folder / new.path))
    found = (folder / new.path).head()
    size = 0 if found is None else found.size
    if found is None or (size != file.size and ((there := file.path.head()) is None or size != there.size)):
        raise OSError(f"{file.path}: {size} of {file.size} bytes were copied")
    return replace(new, size=size, modified_ms=found.modified_us // 1000)
