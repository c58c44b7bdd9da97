"""What is wrong with a region whose processes died or are halted. Pure."""

from __future__ import annotations

from typing import Literal

import pytest

from geo.coordination.claims import OWNED, Liveness, Owner
from geo.coordination.holder import Holder
from geo.ops.health import Health
from geo.ops.looks.owners import of_owners
from geo.ops.region_process import RegionProcess, fault_of_region
from geo.reasons import Reason
from geo.times import from_us

NOW_US = 1_800_000_000_000_000
LIVES, HALTED, DEAD, SILENT = Liveness.LIVES, Liveness.HALTED, Liveness.DEAD, Liveness.SILENT


def _process(text: str) -> RegionProcess:
    """`broker SILENT 900`: what it does, how it is, and for how long it gave no sign of life."""
    does, state, silent = text.split()
    name: Literal["broker", "links"] = "broker" if does == "broker" else "links"
    last_us, liveness = NOW_US - int(silent) * 1_000_000, Liveness(state)
    runner = "broker of eu" if does == "broker" else "origin us of persistent://shop/web/orders into eu"
    claim = Owner(runner, 1, "t", f"h{silent}", OWNED, False, from_us(last_us))
    halted = (int(silent),) if liveness is HALTED else ()
    return RegionProcess("vm7:1", name, Holder(claim, "process 1 on vm7", liveness, last_us, float(silent), halted), last_us, 1)


@pytest.mark.parametrize(
    ("processes", "told"),
    [
        ("", None),  # it never had a broker, or all ended by themselves
        ("broker LIVES 3", None),
        ("links LIVES 3", None),
        ("broker DEAD 900", (Health.NO_BROKER, Reason.NO_OWNER, 900, "geo broker --cluster eu")),
        ("broker SILENT 900", (Health.NO_BROKER, Reason.OWNER_SILENT, 900, "geo broker --cluster eu")),
        ("broker DEAD 900, broker SILENT 800", (Health.NO_BROKER, Reason.OWNER_SILENT, 800, "geo broker --cluster eu")),
        ("broker DEAD 900, broker LIVES 3", None),
        ("broker DEAD 900, links LIVES 3", None),
        ("broker DEAD 900, links DEAD 3", (Health.NO_BROKER, Reason.NO_OWNER, 900, "geo broker --cluster eu")),
        ("links DEAD 900", None),  # what it brought is missed as soon as something is lacking
        ("broker HALTED 20", (Health.STALLED, Reason.OWNER_SILENT, 20, "kill -CONT 20")),
        ("broker HALTED 20, links LIVES 3", (Health.STALLED, Reason.OWNER_SILENT, 20, "kill -CONT 20")),
        ("links HALTED 20, broker LIVES 3", (Health.STALLED, Reason.OWNER_SILENT, 20, "kill -CONT 20")),
        ("broker DEAD 900, links HALTED 20", (Health.STALLED, Reason.OWNER_SILENT, 20, "kill -CONT 20")),
    ],
)
def test_who_runs_a_region_and_does_nothing_is_told_once(processes: str, told: tuple[Health, Reason, int, str] | None) -> None:
    found = fault_of_region("eu", of_region := [_process(one) for one in processes.split(", ") if one])
    assert told is None or (found is not None and found.since_us == NOW_US - told[2] * 1_000_000)
    assert (found and (found.health, found.code, found.do)) == (told and (told[0], told[1], told[3]))
    symptoms = list(of_owners("eu", [one.holder for one in of_region], found))
    errors = [(one.code, one.since_us, one.fix) for one in symptoms if one.level == "error"]
    assert errors == ([] if found is None else [(found.code, found.since_us, found.do)]), "the doctor says the same"
    assert len({one.fix for one in symptoms if one.fix}) == sum(bool(one.fix) for one in symptoms), "a verb once"
    assert [one.level for one in symptoms].count("ok") == processes.count("LIVES")
