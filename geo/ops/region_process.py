"""A process that runs a region, and what is wrong with a region whose processes died or are halted. Pure: no Spark, clock or I/O.

`geo status` and `geo doctor` both tell that; what is wrong with a link that lacks something `health` judges by the same holders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from geo.coordination.claims import Liveness
from geo.coordination.holder import Holder
from geo.ops.health import Finding, Health


@dataclass(frozen=True, slots=True)
class RegionProcess:
    """A process that runs links or bundles of a region, or did and has not ended by itself. `name`: host and process id. `since_us`: when it claimed
    the first of what it has. `works`: how many pieces of work it has. `owns`: the names of all that it has."""

    name: str
    does: Literal["broker", "links"]
    holder: Holder
    since_us: int
    works: int
    owns: frozenset[str] = frozenset()


def fault_of_region(cluster: str, processes: Sequence[RegionProcess]) -> Finding | None:
    """Decides what a person has to do about who runs a region, also where nothing is lacking yet. None: nothing.

    A process that is halted keeps what it has from all others. A broker that died is missed unless somebody else runs something
    there; whoever ends by itself gives up what it has. A process that ran links alone and died is missed as soon as one of
    these lacks something.
    """
    halted = [one for one in processes if one.holder.liveness is Liveness.HALTED]
    if halted:
        first = min(halted, key=lambda one: (one.does, one.name))
        why = first.holder.why
        return Finding(cluster, None, None, Health.STALLED, first.holder.last_us, first.holder.code, why, first.holder.go_on)
    died = [one for one in processes if one.does == "broker"]
    if not died or any(not one.holder.is_dead for one in processes):
        return None
    last = min(died, key=lambda one: (one.holder.silent_s, one.name)).holder
    why = f"its broker did not end by itself: {last.why}"
    return Finding(cluster, None, None, Health.NO_BROKER, last.last_us, last.code, why, f"geo broker --cluster {cluster}")
