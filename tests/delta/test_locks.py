"""The table lock between real processes. No Spark: what is serialised here is a counter in a file."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def _holder(lock: Path, jvm_pid: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until it is told to go on. It is killed at the end."""
    command = [sys.executable, "-c", _HOLD, str(lock), str(jvm_pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_eight_processes_lose_no_update(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", _COUNT, str(tmp_path / "x.lock"), str(counter)]) for _ in range(8)]
    assert [process.wait(60) for process in processes] == [0] * 8
    assert counter.read_text() == "400"


def _take(lock: Path, **how: float) -> None:
    """Take it and give it back."""
    with table_lock(lock, this_process(0), **how):
        pass


def _waiting(lock: Path) -> threading.Thread:
    """Somebody of this process who takes it."""
    thread = threading.Thread(target=_take, args=(lock,))
    thread.start()
    return thread


@pytest.mark.parametrize("is_stopped", [False, True])
def test_whoever_waits_says_for_whom_and_of_a_stopped_one_how_to_go_on_and_waits_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_stopped: bool
) -> None:
    monkeypatch.setattr(locks, "TELL_AFTER_S", 0.05)
    monkeypatch.setattr(locks, "TELL_EVERY_S", 0.05)
    caplog.set_level(logging.WARNING)
    lock = tmp_path / "x.lock"
    with _holder(lock) as holder:
        if is_stopped:
            holder.send_signal(signal.SIGSTOP)
        waiting = _waiting(lock)
        advice = f"Continue it (kill -CONT {holder.pid}) or end it (kill -KILL {holder.pid})"
        until(lambda: len(caplog.messages) >= 3 and is_stopped == any(advice in line for line in caplog.messages), every_s=0.002)
        assert waiting.is_alive(), "a holder that lives is waited for"
        if not is_stopped:
            assert all(f"{lock}: waiting since 0 s for process {holder.pid} on " in line for line in caplog.messages)
            assert "stopped" not in caplog.text
        holder.send_signal(signal.SIGCONT)
        holder.communicate("go on\n")
        waiting.join(60)
        assert not waiting.is_alive()


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
    with _holder(tmp_path / "x.lock"):
        pass
    with table_lock(tmp_path / "x.lock", this_process(0)):
        assert Process.decode((tmp_path / "x.lock").read_text()) == this_process(0)
    assert (tmp_path / "x.lock").read_text() == "", "a holder that leaves cleanly leaves no name"


def test_the_jvm_of_a_killed_holder_is_waited_for_but_by_who_is_not_to_wait(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with _child() as jvm:
        with _holder(lock, jvm.pid):
            pass
        began = time.monotonic()
        with without_waiting(), pytest.raises(LockedError):
            _take(lock)
        assert time.monotonic() - began < 30
        with pytest.raises(RetryableError, match=f"JVM {jvm.pid} of the dead"):
            _take(lock, jvm_end_s=0.2)
    _take(lock)


def test_a_process_id_that_was_given_away_again_is_not_taken_for_the_holder() -> None:
    me = this_process(0)
    assert me.lives
    assert me.is_mine
    assert not Process(me.host, os.getpid(), started="1").lives


def test_a_halted_process_lives_and_is_known_to_be_halted() -> None:
    me = this_process(0)
    with _child() as child:
        started = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        process = Process(me.host, me.pid, me.started, child.pid, started)
        assert process.stopped == ()
        child.send_signal(signal.SIGSTOP)
        until(lambda: [*process.stopped] == [child.pid], every_s=0.002)
        assert Process(me.host, child.pid, started).lives
        assert Process(me.host, child.pid, started="1").stopped == (), "another process that has the id by now"


def test_who_is_not_to_wait_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    with _holder(lock) as holder:
        held = f"x.lock is held by process {holder.pid} on .*, which commits to this table"
        with without_waiting(), pytest.raises(LockedError, match=held):
            _take(lock)
        with without_waiting():
            with without_waiting():
                pass
            with pytest.raises(LockedError):  # what was asked within ends within
                _take(lock)
        other = _waiting(lock)
        holder.communicate("go on\n")
        other.join(60)
        assert not other.is_alive(), "another thread waits all the same"
        with without_waiting():
            _take(lock)
