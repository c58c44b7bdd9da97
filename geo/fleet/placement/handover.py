"""Handover of a bundle from one broker to another, so that one owns it at any time. Pure: no Spark, clock, random or I/O.

The leader assigns, brokers follow, and what counts is the claim. A bundle's owner is who has its newest claim, and each claim has a generation
above all before it. A log takes writes of the generation whose fence it has (geo.coordination.ownership). So two leaders, or a broker that was
paused and comes back, may say and want what they like: they cannot write.

A. A broker begins with a bundle only in three cases. Nobody has claimed it yet, its claim was released, or the leader has said that this very claim is
to be taken over.

B. A broker releases only what it holds, after it has stopped to write.

C. The leader has a claim taken over only if its owner gives no sign of life, or has not released for `release_timeout_s`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assigned:
    """The one who is to own a bundle. Of several the one with the greatest `term` and `number` counts. `term` is the generation of the leader's own
    claim, `number` counts on over all leaders. `take_over` is the generation of a claim that need not be released before."""

    broker: str
    term: int
    number: int
    since: float
    take_over: int | None = None
    reason: str = ""
    """For people: why this broker."""
    request: int = 0
    """The last request of a person for the bundle that was followed."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The one who is to own a bundle from now on, and why."""

    broker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The newest claim of a bundle."""

    broker: str
    generation: int
    released: bool = False


@dataclass(frozen=True, slots=True)
class BeginBundle:
    """Claim a bundle with the generation after `over` (0: nobody has claimed it yet), if that is still the newest one. Then write the fence into
    the logs, then begin."""

    bundle: str
    over: int


@dataclass(frozen=True, slots=True)
class Release:
    """Stop all that writes the bundle's logs, then release the claim of this generation, if it is still the newest one."""

    bundle: str
    generation: int


def broker_step(me: str, assigned: Mapping[str, Assigned], claims: Mapping[str, Claim]) -> list[BeginBundle | Release]:
    """Decides what a broker does by what it reads: both mappings are by bundle, and may be old by the time it does it."""
    steps: list[BeginBundle | Release] = []
    for bundle, wanted in assigned.items():
        claim = claims.get(bundle)
        if claim is not None and claim.broker == me and not claim.released:
            if wanted.broker != me:
                steps.append(Release(bundle, claim.generation))
        elif wanted.broker == me and (claim is None or claim.released or claim.generation == wanted.take_over):
            steps.append(BeginBundle(bundle, claim.generation if claim is not None else 0))
    return steps


def together(steps: Sequence[BeginBundle], refused: Sequence[str]) -> Sequence[BeginBundle]:
    """Chooses the steps, of which there are some, that are to be done now, in one commit. These are those of bundles that were not `refused`, else
    the one that was refused longest ago. `refused` are in the order in which they were. So one that is refused again and again holds up no other,
    and no more than one is tried alone between two signs of life.
    """
    fresh = [step for step in steps if step.bundle not in refused]
    return fresh or [min(steps, key=lambda step: refused.index(step.bundle))]


def to_assign(bundles: Iterable[str], assigned: Mapping[str, Assigned], living: Set[str]) -> list[str]:
    """The bundles for which the manager is to find a broker: assigned to nobody that lives."""
    return [bundle for bundle in bundles if bundle not in assigned or assigned[bundle].broker not in living]


def leader_step(
    term: int,
    decided: Mapping[str, Choice],
    assigned: Mapping[str, Assigned],
    claims: Mapping[str, Claim],
    living: Set[str],
    now: float,
    release_timeout_s: float,
    followed: Mapping[str, int],
) -> dict[str, Assigned]:
    """Decides what a leader reassigns: of the bundles in `decided` their brokers, of all others which claims are to be taken over. Of those in
    `followed`, which are assigned, also up to which request it did what people ask, though nothing becomes of that. `living` are the brokers that
    gave a sign of life in time.
    """
    last = max((old.number for old in assigned.values()), default=0)
    anew: dict[str, Assigned] = {}
    for bundle in [*decided, *(bundle for bundle in assigned if bundle not in decided)]:
        old, claim = assigned.get(bundle), claims.get(bundle)
        to = decided[bundle] if bundle in decided else Choice(assigned[bundle].broker, assigned[bundle].reason)
        since, request = (now, 0) if old is None else (old.since if old.broker == to.broker else now, old.request)
        take_over = None
        if claim is not None and not claim.released and claim.broker != to.broker:
            late = now - since > release_timeout_s
            take_over = claim.generation if late or claim.broker not in living else None
        if old is None or bundle in followed or (old.broker, old.take_over) != (to.broker, take_over):
            last += 1
            anew[bundle] = Assigned(to.broker, term, last, since, take_over, to.reason, max(request, followed.get(bundle, 0)))
    return anew
