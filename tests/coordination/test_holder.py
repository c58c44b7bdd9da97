"""Who owns a runner, and whether he lives: each case has one answer, which all screens share. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pytest

from geo.coordination.claims import OWNED, RELEASED, Liveness, Owner
from geo.coordination.clock import CLOCK_TOLERANCE_US
from geo.coordination.holder import SeenHere, holder
from geo.reasons import Reason
from geo.times import from_us, in_us

SECOND, TIMEOUT_S = 1_000_000, 120.0
NOW = in_us(datetime.fromisoformat("2026-11-28T03:12:04+00:00"))
LIVES, HALTED, ENDED, DEAD, LEFT, SILENT = Liveness
HERE, GONE = SeenHere(lives=True), SeenHere(lives=False)


@dataclass(frozen=True)
class Case:
    """Who claimed, or released, so many seconds ago, gave his last sign so many seconds ago (negative: ahead of the storage's clock), and is seen so
    here; None: it is of another host."""

    what: str
    claimed_s: float
    sign_s: float | None
    seen: SeenHere | None
    liveness: Liveness
    code: Reason | None
    last_s: float | None
    why: str = ""
    released: bool = False


AHEAD_S = CLOCK_TOLERANCE_US / 1e6
RUNS_NO_LONGER = "process 812 on vm7 runs it no longer"
IS_HALTED = "process 812 on vm7 is halted (SIGSTOP): it does nothing, and nobody else does it"

CASES = [
    Case("it runs here, whatever it signs", 900, None, HERE, LIVES, None, 900),
    Case("it runs here, though its signs stopped", 900, 600, HERE, LIVES, None, 600),
    Case("it is stopped here", 900, 30, SeenHere(True, halted=(812,)), HALTED, Reason.OWNER_SILENT, 30, IS_HALTED),
    Case("its JVM is, long ago", 900, 600, SeenHere(True, halted=(813,)), HALTED, Reason.OWNER_SILENT, 600, IS_HALTED),
    Case("it ran here and is gone, a moment after its sign", 900, 1, GONE, DEAD, Reason.NO_OWNER, 1, RUNS_NO_LONGER),
    Case("this process gave it up after an error", 900, 1, SeenHere(False, mine=True), LEFT, Reason.NO_OWNER, 1, RUNS_NO_LONGER),
    Case("it runs elsewhere", 900, 30, None, LIVES, None, 30),
    Case("elsewhere, and is at the end of its time", 900, TIMEOUT_S, None, LIVES, None, TIMEOUT_S),
    Case("and is beyond it", 900, 121, None, SILENT, Reason.OWNER_SILENT, 121, "process 812 on vm7 gave no sign of life for 121 s"),
    Case("its sign is gone, and it claimed lately", 60, None, None, LIVES, None, 60),
    Case("it never signed, or its sign is an older program's, under another name", 900, None, None, SILENT, Reason.OWNER_SILENT, 900,
         "process 812 on vm7 gave no sign of life for 900 s"),
    Case("it claimed after its last sign", 5, 600, None, LIVES, None, 5),
    Case("its host's clock is ahead, less than a clock may be", 900, -AHEAD_S, None, LIVES, None, 0),
    Case("and more: nothing can be said of that sign", 900, -AHEAD_S - 1, None, SILENT, Reason.OWNER_SILENT, 900,
         "process 812 on vm7 gave no sign of life for 900 s"),
    Case("neither of its claim nor of its sign", -900, -900, None, SILENT, Reason.OWNER_SILENT, None,
         "process 812 on vm7 gave no sign of life, but one that is ahead of the storage's clock"),
    Case("its host's clock is behind, less than its time", 900, 100, None, LIVES, None, 100),
    Case("it ended by itself, and runs something else here", 900, 1, HERE, ENDED, Reason.NO_OWNER, 900,
         "process 812 on vm7 ended at 2026-11-28 02:57:04Z", released=True),
    Case("it ended by itself elsewhere, a moment ago", 1, 1, None, ENDED, Reason.NO_OWNER, 1,
         "process 812 on vm7 ended at 2026-11-28 03:12:03Z", released=True),
]  # fmt: skip


def _ago(seconds: float) -> int:
    return NOW - round(seconds * SECOND)


@pytest.mark.parametrize("case", CASES, ids=[case.what for case in CASES])
def test_each_has_one_answer(case: Case) -> None:
    claim = Owner("r", 3, "t", "h", RELEASED if case.released else OWNED, False, from_us(_ago(case.claimed_s)))
    signs = [] if case.sign_s is None else [_ago(case.sign_s)]
    found = holder(claim, "process 812 on vm7", case.seen, signs, NOW, TIMEOUT_S)
    assert (found.liveness, found.code, found.why) == (case.liveness, case.code, case.why)
    assert found.last_us == (None if case.last_s is None else _ago(case.last_s))
    assert found.is_dead == (case.liveness not in (LIVES, HALTED))
    assert found.shown == (case.why or f"process 812 on vm7 runs it, since {claim.since:%Y-%m-%d %H:%M:%S}Z")
    assert (found.liveness is HALTED) == bool(found.halted)
