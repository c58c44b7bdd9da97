"""The table lock between real processes. No Spark: what is serialised here is a counter in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from geo.errors import RetryableError
from geo.log.locks import table_lock
from geo.log.process import Process, this_process

_COUNT = """
import sys
from pathlib import Path
from geo.log.locks import table_lock
from geo.log.process import this_process
lock, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(50):
    with table_lock(lock, this_process(0)):
        counter.write_text(str(int(counter.read_text()) + 1))
"""

_HOLD = """
import sys, time
from pathlib import Path
from geo.log.locks import table_lock
from geo.log.process import this_process
with table_lock(Path(sys.argv[1]), this_process(int(sys.argv[2]))):
    print("held", flush=True)
    time.sleep(600)
"""


def _holder(lock: Path, jvm_pid: int = 0) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(lock), str(jvm_pid)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_eight_processes_lose_no_update(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", _COUNT, str(tmp_path / "x.lock"), str(counter)]) for _ in range(8)]
    assert [process.wait(60) for process in processes] == [0] * 8
    assert counter.read_text() == "400"


def test_a_lock_that_is_not_given_up_is_reported_with_its_holder(tmp_path: Path) -> None:
    holder = _holder(tmp_path / "x.lock")
    try:
        with (
            pytest.raises(RetryableError, match=f"process {holder.pid} on "),
            table_lock(tmp_path / "x.lock", this_process(0), wait_s=0.1),
        ):
            pass
    finally:
        _end(holder)


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    holder = _holder(tmp_path / "x.lock")
    _end(holder)
    with table_lock(tmp_path / "x.lock", this_process(0), wait_s=5):
        assert Process.decode((tmp_path / "x.lock").read_text()) == this_process(0)
    assert (tmp_path / "x.lock").read_text() == "", "a holder that leaves cleanly leaves no name"


def test_the_jvm_of_a_killed_holder_is_waited_for(tmp_path: Path) -> None:
    jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    holder = _holder(tmp_path / "x.lock", jvm.pid)
    _end(holder)
    with (
        pytest.raises(RetryableError, match=f"JVM {jvm.pid} of the dead"),
        table_lock(tmp_path / "x.lock", this_process(0), wait_s=0.2),
    ):
        pass
    jvm.kill()
    jvm.wait()
    with table_lock(tmp_path / "x.lock", this_process(0), wait_s=5):
        pass


def test_a_process_id_that_was_given_away_again_is_not_taken_for_the_holder() -> None:
    me = this_process(0)
    assert me.lives
    assert me.is_mine
    assert not Process(me.host, os.getpid(), started="1").lives
