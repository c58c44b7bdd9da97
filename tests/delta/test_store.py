"""What a store promises, whichever it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geo.delta.disk_store import on_disk, path_of
from geo.delta.store import Put, WritePath, parquet, parquet_checked
from geo.delta.sums import sum_of
from geo.errors import DamagedError


@pytest.fixture(params=["disk"])
def folder(tmp_path: Path) -> WritePath:
    return on_disk(tmp_path / "bucket") / "t"


def _put(place: WritePath, content: bytes) -> None:
    place.store.put(str(place), content)


def test_what_is_not_there_is_said_so(folder: WritePath) -> None:
    nothing = folder / "nothing"
    assert (nothing.head(), nothing.is_there(), folder.has("nothing"), folder.names()) == (None, False, False, [])
    for read in (nothing.get, nothing.lines, nothing.unchecked, lambda: parquet(nothing)):
        with pytest.raises(FileNotFoundError):
            read()
    nothing.delete()


def test_what_is_put_is_there_and_another_takes_its_place(folder: WritePath) -> None:
    place = folder / "a" / "one"
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
    together, names = Barrier(4), 50

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
        return [name for name in folder.names(after) if name[0] != "."]  # what a store keeps beside them

    assert (named(""), named("2"), named("3")) == (["1", "2", "20", "3"], ["20", "3"], [])


def _written(place: WritePath, rows: pa.Table) -> int:
    with place.store.create(str(place)) as file:
        pq.write_table(rows, file, write_page_checksum=True)
        return file.tell()


@pytest.mark.parametrize("count", [0, 3, 40_000])
def test_a_file_that_is_created_is_read_as_it_was_written(folder: WritePath, count: int) -> None:
    rows, place = pa.table({"n": range(count)}), folder / "day=1" / "part"
    size, head = _written(place, rows), place.head()
    assert head is not None
    assert head.size == size
    for opened in (parquet(place), parquet_checked(place), parquet_checked(place, 2**30)):
        assert opened.read().equals(rows)
    place.check()
    folder.store.copy(str(place), str(folder / "day=2" / "copy"))
    (folder / "day=2" / "copy").check()
    assert (folder / "day=2" / "copy").get() == place.get()


def test_a_file_that_could_not_be_written_whole_is_not_there(folder: WritePath) -> None:
    place = folder / "part"
    with pytest.raises(ValueError, match="on purpose"), place.store.create(str(place)) as file:
        file.write(b"half")
        raise ValueError("on purpose")
    assert not place.is_there()
    assert folder.names() == []


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


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("part", [1_000, 65_536, 300_000])
def test_sums_that_are_made_on_the_way_are_those_of_the_file(tmp_path: Path, size: int, part: int) -> None:
    place, content = on_disk(tmp_path) / "f", bytes(range(256)) * 1000
    with place.store.create(str(place)) as file:
        for at in range(0, size, part):
            file.write(content[:size][at : at + part])
    made = sum_of(path_of(place)).read_bytes()
    place.store.adopt(str(place))
    assert made == sum_of(path_of(place)).read_bytes()
    assert place.get() == content[:size]
