"""What happens at a crash point, in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

_PROCESS = """
import os, threading, time
from geo import crash

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
crash.arm("link-before-append:stop")

def run():
    time.sleep(0.1)
    crash.reach(crash.CrashPoint.LINK_BEFORE_APPEND)
    os.write(1, b"went on")

thread = threading.Thread(target=run)
thread.start()
# One core, which the thread that takes signals has when no other wants it.
os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
thread.join()
"""


def test_who_stops_at_a_point_does_not_go_on_before_it_is_continued() -> None:
    with subprocess.Popen([sys.executable, "-c", _PROCESS], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert found is not None
            assert found.si_code == os.CLD_STOPPED
            os.set_blocking(process.stdout.fileno(), False)
            assert process.stdout.read() is None, "nothing yet"
            os.killpg(process.pid, signal.SIGCONT)
            os.set_blocking(process.stdout.fileno(), True)
            assert process.stdout.read(len(b"went on")) == b"went on"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
