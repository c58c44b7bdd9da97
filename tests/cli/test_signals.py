"""What follows when a service manager or a person asks a run to end: the decision, and real signals. No Spark but for the last."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from geo.cli import signals
from geo.cli.arguments import was_cut_short
from geo.cli.ending import AskedBy, Does, on_signal
from geo.cli.running import stop_on_signals
from geo.cli.signals import INTERRUPTED, Signals
from tests.processes import environment
from tests.waiting import until


def test_a_manager_waits_for_what_runs_and_a_person_some_seconds_and_the_second_time_not_at_all() -> None:
    for interrupts in (0, 1):
        assert on_signal(AskedBy.MANAGER, interrupts, can_stop=True, launches=False) == (Does.STOP,)
        assert on_signal(AskedBy.PERSON, 1 + interrupts, can_stop=True, launches=bool(interrupts)) == (Does.END_NOW,)
    assert on_signal(AskedBy.PERSON, 0, can_stop=True, launches=False) == (Does.END_SOON, Does.STOP)
    assert on_signal(AskedBy.PERSON, 0, can_stop=False, launches=False) == (Does.END_SOON, Does.CANCEL, Does.RAISE)
    assert on_signal(AskedBy.PERSON, 0, can_stop=False, launches=True) == (Does.END_UNTIDILY,), "it is not left by an error"


def test_signals_stop_what_runs_where_python_gives_them_and_are_left_alone_in_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signals, "END_S", 0.1)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stopped, ended, over = list[str](), list[int](), threading.Event()

    def end(code: int) -> None:
        ended.append(code)
        over.set()

    args = argparse.Namespace(was_stopped=False, trigger="available-now")
    try:
        with Signals(ended.append, end) as args.signals:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(stop_on_signals, args, lambda: stopped.append("thread")).result()
            assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]
            stop_on_signals(args, lambda: stopped.append("main"))
            assert not was_cut_short(args)
            for number in before:
                signal.raise_signal(number)
            assert stopped == ["main", "main"]
            assert over.wait(10), "Ctrl-C ends what does not stop"
        assert ended == [INTERRUPTED, INTERRUPTED], "its end is said first"
        signal.raise_signal(signal.SIGINT)
        assert len(ended) == 3, "also while what still runs is waited for"
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert was_cut_short(args), "what was to end by itself ends with 1"
    assert not was_cut_short(argparse.Namespace(was_stopped=True, trigger="1 second"))


def test_what_no_signal_ended_leaves_them_as_they_were() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with Signals(lambda code: None, lambda code: None) as own:
        own.stop_by(lambda: None)
        assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
        with pytest.raises(KeyboardInterrupt), Signals(lambda code: None, lambda code: None):
            signal.raise_signal(signal.SIGINT)
        signal.signal(signal.SIGINT, before[signal.SIGINT])
    assert {number: signal.getsignal(number) for number in before} == before


_HANGS = """
import hashlib, os, sys, threading, time
from geo.cli.signals import Signals
def work():
    while True:
        time.sleep(0.1)
with Signals(lambda code: print("ended", code, flush=True), os._exit) as signals:
    try:
        threading.Thread(target=work).start()
        print("runs", flush=True)
        time.sleep(60) if sys.argv[1] == "sleeps" else hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
    except KeyboardInterrupt:
        sys.exit(signals.interrupted())
"""


@pytest.mark.slow
@pytest.mark.parametrize("main", ["sleeps", "is in a call that does not come back"])
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_a_process_of_which_a_thread_never_ends(times: int, main: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HANGS, main], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "runs\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == "stopping; Ctrl-C again ends it at once\n"
        if times == 2:
            process.send_signal(signal.SIGINT)
        assert process.wait(30) == INTERRUPTED
        assert process.stdout.read() == ("ended 130\n" if times == 1 else "")
        assert times == 2 or time.monotonic() - began >= signals.END_S - 0.1


@pytest.mark.spark
def test_ctrl_c_while_spark_starts_leaves_no_java_machine(tmp_path: Path) -> None:
    (tmp_path / "geo.yaml").write_text("version: 1\nclusters:\n  eu: {root: eu}\n")
    command = [sys.executable, "-m", "geo", "verify", "--config", str(tmp_path / "geo.yaml")]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:

        def has_begun() -> bool:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            return any("spark" in Path(f"/proc/{child}/cmdline").read_text() for child in children)

        until(has_begun, every_s=0.01, goes_on=lambda: process.poll() is None)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == INTERRUPTED
        _, err = process.communicate(timeout=120)  # the Java machine has this pipe too: it ends once both have
        assert "Spark is starting" in err
        assert "Traceback" not in err
