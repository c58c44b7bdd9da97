"""One file under whatever name is one file: what is in it is read once, and nothing of it is left out. No Spark."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geo.errors import SourceChangedError, UsageError
from geo.log.sources.files import stem
from geo.log.sources.jsonl import JsonLinesReader
from tests.examples import examples

OPERATIONS = [
    "write",
    "rename",
    "link",
    "symlink",
    "unlink",
    "gzip",
    "zstd",
    "unpack",
    "rotate",
    "read",
    "read_by_link",
    "read_one",
]


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def _read(path: Path, start: dict[str, Any], batch_bytes: int = 10_000) -> tuple[list[str], dict[str, Any]]:
    """What one run reads, and where it ends."""
    keys = []
    reader = JsonLinesReader(str(path), batch_bytes, 10_000)
    reader.end_here()
    while (end := reader.next(start)) != start:
        for span in reader.spans(start, end):
            keys += [row["_geo_error"] or row["key"] for block in reader.read(span) for row in block.to_pylist()]
        start = end
    return keys, start


class Folder:
    """Files with lines that are all different, and what was read of them."""

    def __init__(self, path: Path, pad: int) -> None:
        """Lines have `pad` bytes more than they need."""
        self.pad = pad
        self.inbox, self.link = path / "in", path / "linked"
        self.inbox.mkdir()
        self.link.symlink_to(self.inbox)
        self.written: list[str] = []
        self.found: list[str] = []
        self.position: dict[str, Any] = {}

    def names(self, *endings: str) -> list[Path]:
        """Regular names, in their order."""
        return sorted(one for one in self.inbox.iterdir() if one.name.endswith(endings or "") and not one.is_symlink())

    def do(self, operation: str, which: int, batch_bytes: int) -> None:
        files, plain = self.names(), self.names(".jsonl")
        one = files[which % len(files)] if files else None
        new = self.inbox / f"{chr(ord('a') + which)}{len(self.written)}-{len(list(self.inbox.iterdir()))}.jsonl"
        if operation == "write":
            line = json.dumps({"key": str(len(self.written)), "payload": "x" * self.pad}).encode() + b"\n"
            self.written.append(str(len(self.written)))
            into = one or new
            with into.open("ab") as file:
                file.write({".gz": gzip.compress, ".zst": _zstd}.get(into.suffix, bytes)(line))
            os.utime(into, ns=(1_000_000_000_001 * len(self.written),) * 2)
        elif operation == "read":
            self._read(self.inbox, batch_bytes)
        elif operation == "read_by_link":
            self._read(self.link, batch_bytes)
        elif operation == "read_one" and one is not None:
            self._read(one, batch_bytes)
        elif operation in ("rotate", "rename", "link") and one is not None:
            name = one.with_name(f"{stem(one.name)}-{new.name}{one.suffix.replace('.jsonl', '')}")
            if operation != "rotate":
                one.rename(name) if operation == "rename" else os.link(one, name)
            elif not self._is_linked(one):  # to another disk: it has another inode, and is as old as it was
                shutil.copy2(one, name)
                one.unlink()
        elif operation == "symlink" and plain:
            new.symlink_to(plain[which % len(plain)])
        elif operation == "unlink":
            twice = [name for name in files if name.stat().st_nlink > 1]
            links = [name for name in self.inbox.iterdir() if name.is_symlink()]
            for name in (links + twice)[:1]:
                name.unlink()
        elif operation in ("gzip", "zstd") and plain:
            self._replace(plain[which % len(plain)], operation)
        elif operation == "unpack" and (packed := self.names(".gz")):
            path = packed[which % len(packed)]
            if path.stat().st_nlink == 1 and not path.with_suffix("").exists():
                path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
                shutil.copystat(path, path.with_suffix(""))
                path.unlink()

    def _is_linked(self, path: Path) -> bool:
        links = [name for name in self.inbox.iterdir() if name.is_symlink() and name.resolve() == path.resolve()]
        return path.stat().st_nlink > 1 or bool(links)

    def _replace(self, path: Path, operation: str) -> None:
        """As gzip and zstd do, which leave links alone."""
        ending, pack = (".gz", gzip.compress) if operation == "gzip" else (".zst", _zstd)
        if self._is_linked(path):
            return
        packed = path.with_name(path.name + ending)
        packed.write_bytes(pack(path.read_bytes()))
        shutil.copystat(path, packed)
        path.unlink()

    def _read(self, path: Path, batch_bytes: int) -> None:
        keys, self.position = _read(path, self.position, batch_bytes)
        self.found += keys


@given(
    st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 3), st.integers(1, 60)), max_size=14),
    st.sampled_from([0, 4_096]),
)
@example([("write", 0, 9), ("read", 0, 9), ("write", 0, 9), ("read_by_link", 0, 9), ("write", 0, 9), ("read", 0, 9)], 0)
@example([("write", 0, 9), ("read", 0, 9), ("write", 0, 9), ("read_by_link", 0, 9), ("gzip", 0, 9)], 0)
@example([("write", 0, 9), ("write", 0, 9), ("read", 0, 9), ("gzip", 0, 9), ("write", 0, 9), ("rename", 1, 9)], 0)
@example([("write", 0, 9), ("read", 0, 9), ("write", 0, 9), ("rotate", 0, 9), ("gzip", 0, 9)], 4_096)
def test_whatever_becomes_of_names_each_line_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, done: Sequence[tuple[str, int, int]], pad: int
) -> None:
    """Or refused: a file that grew and was renamed, moved to another disk, or compressed, before it was read again, if it is so short that it may
    be another one."""
    folder = Folder(tmp_path_factory.mktemp("files"), pad)
    try:
        for one in done:
            folder.do(*one)
        folder.do("read", 0, 10_000)
        assert sorted(folder.found, key=int) == folder.written
    except SourceChangedError as error:
        assert "which is gone or replaced, so it may be that file" in str(error)  # noqa: PT017
        assert not pad


LINES = "".join(json.dumps({"key": str(number), "payload": "é" * (number % 50)}) + "\n" for number in range(300)).encode()
KEYS = [str(number) for number in range(300)]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".zst", _zstd)])
@settings(max_examples=examples(0.2))
@given(batch_bytes=st.integers(700, 30_000), cut=st.integers(0, len(LINES)))
def test_a_compressed_file_is_read_in_batches_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, ending: str, pack: Any, batch_bytes: int, cut: int
) -> None:
    """Also of several members; its last line needs no newline, since nobody is writing it."""
    path = tmp_path_factory.mktemp("packed") / f"a.jsonl{ending}"
    path.write_bytes(pack(LINES[:cut]) + pack(LINES[cut:-1]))
    assert _read(path, {}, batch_bytes)[0] == KEYS


def test_a_file_that_is_there_compressed_too_is_read_once_and_what_differs_is_refused(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_bytes(LINES)
    whole = gzip.compress(LINES)
    for there in (whole[:1_000], whole, gzip.compress(LINES[:5_000])):
        packed.write_bytes(there)
        assert _read(tmp_path, {})[0] == KEYS
    packed.write_bytes(whole)
    plain.write_bytes(LINES[:5_000])  # as while it is uncompressed
    found, position = _read(tmp_path, {})
    assert found == KEYS
    plain.write_bytes(LINES + b'{"key": "300"}\n')
    assert _read(tmp_path, position)[0] == ["300"]
    packed.write_bytes(gzip.compress(LINES.replace(b'"7"', b'"8"')))
    with pytest.raises(SourceChangedError, match=r"a.jsonl.gz: is called as what comes of compressing .* and holds other lines"):
        _read(tmp_path, {})
    for copy in (plain, packed):
        os.utime(copy, (1_000, 1_000))  # as an archive may give to all its files
    with pytest.raises(SourceChangedError, match="holds other lines"):
        _read(tmp_path, {})


def test_a_compressed_file_that_is_not_whole_is_left_for_later_and_a_damaged_one_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, whole = tmp_path / "a.jsonl.gz", gzip.compress(LINES)
    path.write_bytes(whole[:-9])
    (tmp_path / "b.jsonl").write_text('{"key": "b"}\n')
    assert _read(tmp_path, {})[0] == ["b"]
    assert "a.jsonl.gz: it is not whole, and is left for a later run" in caplog.text
    path.write_bytes(whole[:-6] + b"XX" + whole[-4:])
    with pytest.raises(
        UsageError, match=r"a.jsonl.gz: what is in it cannot be read as gzip, as its name says: .*incorrect data check"
    ):
        _read(tmp_path, {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(LINES), r"gzip data, whose name ends in \.gz"),
        (_zstd(LINES), r"Zstandard data, whose name ends in \.zst"),
        (LINES.decode().encode("utf-16"), "UTF-16: JSON lines are UTF-8"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (b"PK\x03\x04 and more", "a zip archive"),
    ],
)
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=rf"a.jsonl: in it is {said}.*\. Nothing of it was published"):
        _read(tmp_path, {})


@given(
    st.lists(
        st.tuples(st.text(max_size=5), st.sampled_from(["utf-8", "utf-8-sig", "latin-1", "utf-16"])), min_size=1, max_size=5
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
@example([("é", "utf-8-sig")], "\n", False)
def test_lines_of_utf_8_are_read_and_others_rejected_each_by_itself(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]], newline: str, last: bool
) -> None:
    """A byte order mark in front of the first is no part of it."""
    path = tmp_path_factory.mktemp("texts") / "a.jsonl"
    lines = [json.dumps({"key": text}, ensure_ascii=False).encode(code, "replace") for text, code in texts]
    if texts[0][1] == "utf-16":
        return  # the whole file is refused
    path.write_bytes(newline.encode().join(lines) + (newline.encode() if last else b""))
    found = _read(path, {})[0]
    good = [_is_good(line, text, is_first=not number) for number, (line, (text, _)) in enumerate(zip(lines, texts, strict=True))]
    if not last and not good[-1]:
        good, texts = good[:-1], texts[:-1]  # left for later
    expected = [text if is_good else None for is_good, (text, _) in zip(good, texts, strict=True)]
    assert [key if is_good else None for key, is_good in zip(found, good, strict=True)] == expected


def _is_good(line: bytes, text: str, *, is_first: bool) -> bool:
    try:
        return bool(json.loads(line.decode("utf-8-sig" if is_first else "utf-8"))["key"] == text)
    except ValueError:
        return False
