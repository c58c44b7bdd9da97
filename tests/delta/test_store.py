"""What a store promises, whichever it is."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from threading import Barrier, get_ident

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geo.delta.commits import checksum_file, commit_file
from geo.delta.delta_log import newest_metadata, newest_version, opened_commits, read_folder, remove_below
from geo.delta.delta_state import DeltaState, require_state
from geo.delta.disk_store import on_disk, path_of
from geo.delta.engine import UnsupportedError
from geo.delta.engines.native.active_files import active_files, described
from geo.delta.engines.native.rows import added_rows
from geo.delta.put_commit import put_checksum, put_commit
from geo.delta.row_files import remove_files, write_files
from geo.delta.store import PIECE_BYTES, Put, StorePath, WritePath, ask_all, meanwhile, parquet, parquet_checked, read_each
from geo.delta.writer import commit_files
from geo.errors import DamagedError, UnknownAnswerError
from tests.delta.memory_store import MemoryStore
from tests.delta.on_s3 import table_on


@pytest.fixture(params=["disk", "memory", "s3"])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> WritePath:
    if request.param == "memory":
        return StorePath(MemoryStore(), "memory://bucket/t")
    if request.param == "s3":
        return table_on(request.getfixturevalue("s3"))
    (tmp_path / "bucket" / "t" / "_delta_log").mkdir(parents=True)
    return on_disk(tmp_path / "bucket") / "t"


def _put(place: WritePath, content: bytes) -> None:
    place.store.put(str(place), content)


def test_what_is_not_there_is_said_so(folder: WritePath) -> None:
    nothing = folder / "nothing"
    assert (nothing.head(), nothing.is_there(), folder.has("nothing"), nothing.names()) == (None, False, False, [])
    for read in (nothing.get, nothing.lines, nothing.unchecked, lambda: parquet(nothing)):
        with pytest.raises(FileNotFoundError):
            read()
    nothing.delete()


def test_what_is_put_is_there_and_another_takes_its_place(folder: WritePath) -> None:
    place = folder / "one"
    _put(place, b"first\n")
    first = place.head()
    _put(place, b"second\n\x0b\n")
    second = place.head()
    assert (place.get(), place.unchecked(), place.lines()) == (b"second\n\x0b\n", b"second\n\x0b\n", ["second", "\x0b"])
    assert first is not None
    assert second is not None
    assert (second.size, second.stamp != first.stamp, second.modified_us >= first.modified_us) == (9, True, True)
    place.delete()
    assert not place.is_there()


def test_of_those_who_put_a_name_at_once_one_has_made_it(folder: WritePath) -> None:
    together, names = Barrier(4), 20

    def put(who: int) -> list[Put]:
        together.wait()
        return [folder.store.put_if_absent(str(folder / f"{at:03}"), b"%d" % who) for at in range(names)]

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(put, range(4)))
    for at, answers in enumerate(zip(*said, strict=True)):
        assert sorted(answer.value for answer in answers) == ["made", "there", "there", "there"]
        assert (folder / f"{at:03}").get() == b"%d" % answers.index(Put.MADE)


def test_names_come_in_their_order_from_one_on(folder: WritePath) -> None:
    for name in ("3", "1", "20", "2"):
        _put(folder / name, b"")

    def named(after: str) -> list[str]:
        return [name for name in folder.names(after) if name[0] not in "._"]  # what a disk has beside them

    assert (named(""), named("2"), named("3")) == (["1", "2", "20", "3"], ["20", "3"], [])


def _written(place: WritePath, rows: pa.Table) -> int:
    with place.store.create(str(place)) as file:
        pq.write_table(rows, file, write_page_checksum=True)
        return int(file.tell())


@pytest.mark.parametrize("count", [0, 3, 40_000])
def test_a_file_that_is_created_is_read_as_it_was_written(folder: WritePath, count: int) -> None:
    rows, place = pa.table({"n": range(count)}), folder / "day=1" / "part"
    size, head = _written(place, rows), place.head()
    assert head is not None
    assert head.size == size
    for opened in (parquet(place), parquet_checked(place), parquet_checked(place, 2**30)):
        assert opened.read().equals(rows)
    place.check()
    folder.store.copy(place, str(folder / "day=2" / "copy"))
    (folder / "day=2" / "copy").check()
    assert (folder / "day=2" / "copy").get() == place.get()


@pytest.mark.parametrize("size", [4, 3 * PIECE_BYTES])
def test_a_file_that_could_not_be_written_whole_is_not_there(folder: WritePath, size: int) -> None:
    place = folder / "part"
    with pytest.raises(ValueError, match="on purpose"), place.store.create(str(place)) as file:
        file.write(bytes(size))
        raise ValueError("on purpose")
    assert not place.is_there()
    assert [name for name in folder.names() if name != "_delta_log"] == []


def test_nobody_makes_again_what_was_removed_as_a_whole(tmp_path: Path) -> None:
    table = on_disk(tmp_path / "t")
    puts = (table.store.put, table.store.put_if_absent)
    for put in puts:
        with pytest.raises(FileNotFoundError):
            put(str(table / "_delta_log" / "0.json"), b"")
    with pytest.raises(FileNotFoundError), table.store.create(str(table / "day=1" / "part")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_first_line_is_read_of_a_file_of_any_length(folder: WritePath) -> None:
    for number, content in enumerate((b"", b"one", b"one\n", b"one\ntwo", b"x" * 70_000 + b"\ny", b"\n")):
        _put(folder / str(number), content)
        assert (folder / str(number)).first_line() == content.split(b"\n")[0]


def test_what_a_library_wrote_over_it_is_taken_and_held_to_that(tmp_path: Path) -> None:
    place = on_disk(tmp_path) / "pointer"
    _put(place, b"ours")
    path_of(place).write_bytes(b"theirs")
    with pytest.raises(DamagedError, match="pointer is damaged"):
        place.get()
    place.store.forget(str(place))
    assert place.get() == b"theirs"
    place.store.adopt(str(place))
    path_of(place).write_bytes(b"flipped")
    with pytest.raises(DamagedError):
        place.check()


def test_what_is_asked_of_many_comes_in_order_and_what_is_not_there_is_none(folder: WritePath) -> None:
    for name in ("1", "2", "3"):
        _put(folder / name, b"%s\n" % name.encode())
    names = ["3", "4", "1"] * 20
    assert list(read_each(folder.store, names, lambda name: (folder / name).lines())) == [["3"], None, ["1"]] * 20


def test_what_does_not_follow_from_each_other_is_asked_at_once_where_each_is_a_request(folder: WritePath) -> None:
    done = list[str]()

    def note(what: str) -> str:
        done.append(what)
        return what

    with meanwhile(folder.store) as begin:
        begun = begin(partial(note, "begun"))
        if folder.store.is_near:
            assert done == [], "it is called when it is asked for"
        else:
            met = Barrier(2)
            assert sorted(ask_all(folder.store, [partial(met.wait, 10)] * 2)) == [0, 1]
    assert begun() == "begun"
    assert ask_all(folder.store, [get_ident]) == [get_ident()], "one alone takes no thread"

    def fail(what: str) -> str:
        raise ValueError(note(what))

    with pytest.raises(ValueError, match="first"):
        ask_all(folder.store, [partial(note, "before"), partial(fail, "first"), partial(fail, "second")])
    assert done[:3] == ["begun", "before", "first"] if folder.store.is_near else {"before", "first", "second"} <= {*done}


def test_at_the_end_of_a_process_too_each_is_read() -> None:
    """By a thread for which the end waits, when no pool takes anything any more."""
    code = """
import atexit
from geo.delta.store import ask_all, read_each
from tests.delta.memory_store import MemoryStore
atexit.register(lambda: print(list(read_each(MemoryStore(), range(3), str)), ask_all(MemoryStore(), [str, int])))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("['0', '1', '2'] ['', 0]\n", "")


def test_a_table_begins_where_nothing_is(folder: WritePath) -> None:
    log = folder / "_delta_log"
    assert folder.store.begin_log(str(log))
    folder.store.end_log(str(log))
    assert folder.store.begin_log(str(log))
    _put(log / f"{0:020}.json", b"{}")
    assert not folder.store.begin_log(str(log))
    folder.store.end_log(str(log))
    assert (log / f"{0:020}.json").get() == b"{}"
    log = folder / "day=1" / "_delta_log"
    with folder.store.create(str(folder / "day=1" / "part")):
        pass
    assert not folder.store.begin_log(str(log)), "another's file"


SCHEMA = {"id": "t", "partitionColumns": ["day"], "configuration": {}, "schemaString": json.dumps({"type": "struct", "fields": [
    {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (("n", "long"), ("day", "date"))
]})}  # fmt: skip


def test_a_table_is_written_and_read_wherever_it_is(folder: WritePath) -> None:
    log = _table(folder)
    days = [date(2026, 11, 28), date(2026, 11, 29)]
    for number in range(3):
        state = require_state(log)
        written = write_files(folder, state, pa.table({"n": [number, number + 10], "day": days}))
        assert len(written.files) == 2
        assert commit_files(log, state, written.files, f"record {number}")
        assert not commit_files(log, state, written.files, "of who was slower")
    state = require_state(log)
    assert (state.version, state.checksum["numFiles"], newest_version(log)) == (3, 6, 3)
    assert sorted(added_rows(log, state, 2, 3)["n"].to_pylist()) == [1, 2, 11, 12]
    assert [commit.user_metadata for commit in opened_commits(log, 1, 9)] == ["record 0", "record 1", "record 2"]
    assert len(described(log, *active_files(log, 2))) == 4
    assert {(file.statistics["num_records"], file.partition("day")) for file in described(log, *active_files(log))} == {
        (1, str(day)) for day in days
    }
    metadata = newest_metadata(log, 3)
    assert metadata is not None
    assert metadata["id"] == "t"
    _put(log / f"{2:020}.checkpoint.parquet", b"")
    assert remove_below(log, read_folder(log), 2) == 2
    assert read_folder(log).commits == (2, 3)
    (log / checksum_file(3)).delete()  # which lists the files too
    with pytest.raises(UnsupportedError, match="cannot be read"):  # its checkpoint is none
        active_files(log)
    with pytest.raises(UnsupportedError, match="not all there"):
        active_files(log, 1)
    remove_files(folder, written.files)
    with pytest.raises(UnsupportedError, match="cannot be read"):
        added_rows(log, state, 3, 3)


def _table(folder: WritePath) -> WritePath:
    """The log of a table whose version 0 is there."""
    log, protocol = folder / "_delta_log", {"minReaderVersion": 1, "minWriterVersion": 2}
    assert put_commit(log, 0, [{"commitInfo": {"txnId": "first"}}, {"protocol": protocol}, {"metaData": SCHEMA}])
    put_checksum(log, 0, {"txnId": "first", "metadata": SCHEMA, "protocol": protocol, "tableSizeBytes": 0, "numFiles": 0})
    return log


def _append(log: WritePath, state: DeltaState) -> bool:
    written = write_files(log.parent, state, pa.table({"n": [state.version], "day": [date(2026, 11, 29)]}))
    return commit_files(log, state, written.files, None)


@pytest.mark.parametrize("folder", ["memory", "s3"], indirect=True)
def test_what_is_put_below_where_a_log_was_cut_does_not_count_and_is_gone(folder: WritePath) -> None:
    log = _table(folder)
    halted = require_state(log)
    for _ in range(4):
        assert _append(log, require_state(log))
    _put(log / f"{3:020}.checkpoint.parquet", b"")
    assert remove_below(log, read_folder(log), 3) == 3
    assert not _append(log, halted)
    assert read_folder(log).commits == (3, 4)


@pytest.mark.parametrize("folder", ["memory", "s3"], indirect=True)
def test_of_a_commit_that_nobody_can_tell_of_no_file_is_removed(folder: WritePath) -> None:
    """The log was cut right above the commit that it was made for."""
    log = _table(folder)
    halted = require_state(log)
    for _ in range(3):
        assert _append(log, require_state(log))
    for version in (0, 1):
        (log / commit_file(version)).delete()
    with pytest.raises(UnknownAnswerError, match="nobody can tell whether it counts"):
        _append(log, halted)
    assert read_folder(log).commits == (1, 2, 3)
