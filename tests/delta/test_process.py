"""Whether a process lives, also one that the system hides from this one (/proc with hidepid, another user)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from geo.delta import process as processes
from geo.delta.process import Process, this_process


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    one = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield one
    one.kill()
    one.wait()
    assert one.stdin is not None
    one.stdin.close()


def test_one_that_the_system_hides_may_live_until_no_process_has_its_id(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    me = this_process(0)
    hidden = Process(me.host, child.pid, processes._started(child.pid), child.pid, processes._started(child.pid), me.system)
    assert (hidden.lives, hidden.is_seen_here) == (True, True)
    monkeypatch.setattr(processes, "_stat", lambda pid: ("", ""))
    assert (hidden.lives, hidden.is_seen_here) == (True, False)
    assert not hidden.wait_for_jvm_end(0.0)
    child.kill()
    child.wait()
    assert (hidden.lives, hidden.is_seen_here) == (False, True)
    assert hidden.wait_for_jvm_end(0.0)


def test_one_whose_id_another_process_has_by_now_is_gone(child: subprocess.Popen[bytes]) -> None:
    me = this_process(0)
    gone = Process(me.host, child.pid, "1", system=me.system)
    assert (gone.lives, gone.is_seen_here) == (False, True)
    assert not Process("another-host", child.pid, "1").is_seen_here
