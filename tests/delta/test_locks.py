"""The table lock between real processes. No Spark: what is serialised here is a counter in a file."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from geo.delta import locks
from geo.delta.locks import table_lock, without_waiting
from geo.delta.process import Process, this_process
from geo.errors import LockedError, RetryableError
from tests.waiting import until

_COUNT = """
import sys
from pathlib import Path
from geo.delta.locks import table_lock
from geo.delta.process import this_process
lock, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(50):
    with table_lock(lock, this_process(0)):
        counter.write_text(str(int(counter.read_text()) + 1))
"""

_HOLD = """
import sys
from pathlib import Path
from geo.delta.locks import table_lock
from geo.delta.process import this_process
with table_lock(Path(sys.argv[1]), this_process(int(sys.argv[2]))):
    print("held", flush=True)
    sys.stdin.readline()
"""


def _holder(lock: Path, jvm_pid: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _HOLD, str(lock), str(jvm_pid)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def test_eight_processes_lose_no_update(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", _COUNT, str(tmp_path / "x.lock"), str(counter)]) for _ in range(8)]
    assert [process.wait(60) for process in processes] == [0] * 8
    assert counter.read_text() == "400"


def _waiting(lock: Path) -> threading.Thread:
    """Somebody of this process who wants the lock, takes it and gives it back."""

    def take() -> None:
        with table_lock(lock, this_process(0)):
            pass

    thread = threading.Thread(target=take)
    thread.start()
    return thread


def test_whoever_waits_says_for_whom_and_waits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "TELL_AFTER_S", 0.05)
    monkeypatch.setattr(locks, "TELL_EVERY_S", 0.05)
    caplog.set_level(logging.WARNING)
    lock = tmp_path / "x.lock"
    holder = _holder(lock)
    waiting = _waiting(lock)
    try:
        until(lambda: len(caplog.messages) >= 3, every_s=0.002)
        assert waiting.is_alive(), "a holder that lives is waited for"
        assert all(f"{lock}: waiting since 0 s for process {holder.pid} on " in line for line in caplog.messages)
        assert "stopped" not in caplog.text
        holder.communicate("go on\n")
        waiting.join(60)
        assert not waiting.is_alive()
    finally:
        _end(holder)


def test_of_a_stopped_holder_it_is_said_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "TELL_AFTER_S", 0.05)
    monkeypatch.setattr(locks, "TELL_EVERY_S", 0.05)
    caplog.set_level(logging.WARNING)
    lock = tmp_path / "x.lock"
    holder = _holder(lock)
    holder.send_signal(signal.SIGSTOP)
    waiting = _waiting(lock)
    try:
        advice = f"Continue it (kill -CONT {holder.pid}) or end it (kill -KILL {holder.pid})"
        until(lambda: any(advice in line for line in caplog.messages), every_s=0.002)
        assert waiting.is_alive()
        holder.send_signal(signal.SIGCONT)
        holder.communicate("go on\n")
        waiting.join(60)
        assert not waiting.is_alive()
    finally:
        _end(holder)


def test_threads_of_one_process_wait_for_each_other(tmp_path: Path) -> None:
    lock, counter = tmp_path / "x.lock", [0]

    def count() -> None:
        for _ in range(50):
            with table_lock(lock, this_process(0)):
                seen = counter[0]
                time.sleep(0)
                counter[0] = seen + 1

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter == [400]


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    holder = _holder(tmp_path / "x.lock")
    _end(holder)
    with table_lock(tmp_path / "x.lock", this_process(0)):
        assert Process.decode((tmp_path / "x.lock").read_text()) == this_process(0)
    assert (tmp_path / "x.lock").read_text() == "", "a holder that leaves cleanly leaves no name"


def test_the_jvm_of_a_killed_holder_is_waited_for(tmp_path: Path) -> None:
    jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    holder = _holder(tmp_path / "x.lock", jvm.pid)
    _end(holder)
    with (
        pytest.raises(RetryableError, match=f"JVM {jvm.pid} of the dead"),
        table_lock(tmp_path / "x.lock", this_process(0), jvm_end_s=0.2),
    ):
        pass
    jvm.kill()
    jvm.wait()
    with table_lock(tmp_path / "x.lock", this_process(0)):
        pass


def test_a_process_id_that_was_given_away_again_is_not_taken_for_the_holder() -> None:
    me = this_process(0)
    assert me.lives
    assert me.is_mine
    assert not Process(me.host, os.getpid(), started="1").lives


def test_a_halted_process_lives_and_is_known_to_be_halted() -> None:
    me = this_process(0)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
    process = Process(me.host, me.pid, me.started, child.pid, started)
    try:
        assert process.stopped == ()
        child.send_signal(signal.SIGSTOP)
        until(lambda: [*process.stopped] == [child.pid], every_s=0.002)
        assert Process(me.host, child.pid, started).lives
        assert Process(me.host, child.pid, started="1").stopped == (), "another process that has the id by now"
    finally:
        child.kill()
        child.wait()


def test_who_is_not_to_wait_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    holder = _holder(lock)
    try:
        with (
            without_waiting(),
            pytest.raises(LockedError, match=f"x.lock is held by process {holder.pid} on .*, which commits to this table"),
            table_lock(lock, this_process(0)),
        ):
            pass
        with without_waiting():
            with without_waiting():
                pass
            with pytest.raises(LockedError), table_lock(lock, this_process(0)):  # what was asked within ends within
                pass
        other = _waiting(lock)
        holder.communicate("go on\n")
        other.join(60)
        assert not other.is_alive(), "another thread waits all the same"
        with without_waiting(), table_lock(lock, this_process(0)):
            pass
    finally:
        _end(holder)


def test_who_is_not_to_wait_does_not_wait_for_a_dead_holders_jvm(tmp_path: Path) -> None:
    jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    _end(_holder(tmp_path / "x.lock", jvm.pid))
    began = time.monotonic()
    with without_waiting(), pytest.raises(LockedError), table_lock(tmp_path / "x.lock", this_process(0)):
        pass
    assert time.monotonic() - began < 30
    jvm.kill()
    jvm.wait()
