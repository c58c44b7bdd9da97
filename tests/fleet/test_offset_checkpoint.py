"""Files of offsets in Kafka's format: whole or as before, whatever happens to the writer; what is not one is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.errors import OffsetFileError
from geo.fleet.offset_checkpoint import OffsetCheckpoint

OFFSETS = {("persistent://shop/web/clicks", 0): 4711, ("persistent://shop/web/orders", 3): -1}

_names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
_offsets = st.dictionaries(st.tuples(_names, st.integers(0, 2**31 - 1)), st.integers(-(2**63), 2**63 - 1), max_size=20)


@given(_offsets)
def test_what_is_written_is_read_and_replaces_all_that_was_there(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[tuple[str, int], int]
) -> None:
    file = OffsetCheckpoint(tmp_path_factory.mktemp("offsets") / "offsets")
    assert file.read() == {}
    file.write(OFFSETS)
    file.write(offsets)
    assert file.read() == offsets
    assert [path.name for path in file.path.parent.iterdir()] == ["offsets"]


def test_it_has_the_bytes_that_kafka_writes(tmp_path: Path) -> None:
    OffsetCheckpoint(tmp_path / "offsets").write(OFFSETS)
    text = "0\n2\npersistent://shop/web/clicks 0 4711\npersistent://shop/web/orders 3 -1\n"
    assert (tmp_path / "offsets").read_bytes() == text.encode()


@pytest.mark.parametrize("text", ["", "0", "0\n", "0\n0\n"])
def test_one_that_was_just_made_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "offsets").write_text(text)
    assert OffsetCheckpoint(tmp_path / "offsets").read() == {}


def test_lines_end_and_words_part_as_java_has_it(tmp_path: Path) -> None:
    (tmp_path / "offsets").write_bytes(b"0\r\n3\rt 0 +5\r\nt\t1\x0b 6 \nt 2\f7")
    assert OffsetCheckpoint(tmp_path / "offsets").read() == {("t", 0): 5, ("t", 1): 6, ("t", 2): 7}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"1\n0\n", "unrecognised version 1, expected 0"),
        (b"zero\n0\n", "malformed line 1: 'zero'"),
        (b"0\nt 0 5\n", "malformed line 2"),
        (b"0\n2\nt 0 5\n", "expected 2 entries, found 1"),
        (b"0\n1\nt 0 5\nt 1 5\n", "expected 1 entries, found 2"),
        (b"0\n-1\n", "expected -1 entries, found 0"),
        (b"0\n1\nt 0\n", "malformed line 3: 't 0'"),
        (b"0\n1\nt 0 5 6\n", "malformed line 3"),
        (b"0\n1\n t 0 5\n", "malformed line 3"),
        (b"0\n1\nt 0 5\n\n", "malformed line 4: ''"),
        (b"0\n1\nt x 5\n", "malformed line 3"),
        (b"0\n1\nt 0 1_0\n", "malformed line 3"),
        ("0\n1\nt 0 ٣\n".encode(), "malformed line 3"),
        (b"0\n1\nt 2147483648 5\n", "malformed line 3"),
        (b"0\n1\nt 0 9223372036854775808\n", "malformed line 3"),
        (b"0\n2\nt 0 5\nt 0 6\n", "line 4 names partition 0 of t once more"),
        (b"0\n1\nt\xff 0 5\n", "it is no UTF-8"),
        (b"0\n1\n" + b"t" * 5000 + b" 0 5\n", "malformed line 3"),
        (b"0\n99999999999999999999999\n", "malformed line 2"),
        (bytes(100_000), "malformed line 1"),
    ],
)
def test_what_is_no_such_file_is_refused_with_its_line(tmp_path: Path, text: bytes, says: str) -> None:
    (tmp_path / "offsets").write_bytes(text)
    with pytest.raises(OffsetFileError) as refused:
        OffsetCheckpoint(tmp_path / "offsets").read()
    assert says in str(refused.value)


@pytest.mark.parametrize("key", [("", 0), ("a b", 0), ("a\n", 0), ("t", 2**31), ("t" * 5000, 0), ("\ud800", 0)])
def test_what_a_line_cannot_hold_is_not_written(tmp_path: Path, key: tuple[str, int]) -> None:
    file = OffsetCheckpoint(tmp_path / "offsets")
    file.write(OFFSETS)
    with pytest.raises(OffsetFileError, match="cannot be a line"):
        file.write({key: 1})
    assert file.read() == OFFSETS


_WRITER = """
import sys
from geo.fleet.offset_checkpoint import OffsetCheckpoint
file, number = OffsetCheckpoint(sys.argv[1]), 0
while True:
    number += 1
    file.write({("topic", partition): number for partition in range(2000)})
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_leaves_one_whole_writing(tmp_path: Path) -> None:
    path = tmp_path / "offsets"
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        written = [int(writer.stdout.readline()) for _ in range(3)][-1]
        writer.send_signal(signal.SIGKILL)
        written = max([written, *map(int, writer.communicate()[0].split())])
        (found,) = set(OffsetCheckpoint(path).read().values())
        assert found in (written, written + 1), "the last that returned, or the one it was at"


def test_what_killed_writers_left_goes_after_an_hour(tmp_path: Path) -> None:
    old, new = tmp_path / ".offsets.0123.tmp", tmp_path / ".offsets.4567.tmp"
    for left, age_s in ((old, 3700), (new, 60)):
        left.write_text("0\n")
        os.utime(left, (time.time() - age_s,) * 2)
    OffsetCheckpoint(tmp_path / "offsets").write(OFFSETS)
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, "offsets"]


def test_two_writers_at_once_leave_one_of_both(tmp_path: Path) -> None:
    files = [OffsetCheckpoint(tmp_path / "offsets") for _ in range(2)]

    def write(at: int) -> None:
        for _ in range(30):
            files[at].write({("topic", partition): at for partition in range(200)})

    threads = [threading.Thread(target=write, args=(at,)) for at in (0, 1)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert len(set(files[0].read().values())) <= 1
    assert len(files[0].read()) == 200


_TOO_MUCH = """
import resource, sys
from geo.fleet.offset_checkpoint import OffsetCheckpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    OffsetCheckpoint(sys.argv[1]).write({("topic", partition): 1 for partition in range(1000)})
except OSError as error:
    print(type(error).__name__)
"""


def test_a_disk_with_no_room_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = OffsetCheckpoint(tmp_path / "offsets")
    file.write(OFFSETS)
    done = subprocess.run([sys.executable, "-c", _TOO_MUCH, str(file.path)], capture_output=True, text=True, check=True)
    assert done.stdout == "OSError\n"
    assert file.read() == OFFSETS
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]
