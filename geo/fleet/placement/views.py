"""Views of brokers and bundles for people, and refusals of what they ask. Pure: no Spark, clock, random or I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from geo.config.yaml_nodes import suggestion
from geo.errors import UsageError
from geo.fleet.placement.bundles import (
    FIRST,
    LAST,
    Bundles,
    bundle_hash,
    bundle_name,
    bundle_names,
    bundle_of,
    namespace_of,
    namespace_of_topic,
    overlapping,
    parse_bundle,
)
from geo.fleet.placement.handover import Assigned, Claim
from geo.fleet.placement.leading import NOBODY, SPLIT, TRANSFER, BundleRequest
from geo.fleet.placement.load_data import BrokerLoad
from geo.fleet.placement.policies import Allowed, Isolation, Policies
from geo.fleet.placement.splitting import range_equally, specified_positions, topic_count_equally
from geo.text import counted, show

RANGE, TOPIC_COUNT, POSITIONS, FLOW = (
    "range_equally_divide",
    "topic_count_equally_divide",
    "specified_positions_divide",
    "flow_or_qps_equally_divide",
)
SPLIT_ALGORITHMS = (RANGE, TOPIC_COUNT, POSITIONS, FLOW)
"""Pulsar's names, its default first. FLOW is known, and refused."""


def owner_of(bundle: str, claims: Mapping[str, Claim]) -> str | None:
    """The broker that owns a bundle; None: nobody."""
    claim = claims.get(bundle)
    return None if claim is None or claim.released else claim.broker


@dataclass(frozen=True, slots=True)
class BundleView:
    """A bundle: who owns it now, who is to, and why. An owner None: nobody. `splits`: nobody is to, since it is about to be split."""

    bundle: str
    owner: str | None
    assigned: str | None
    why: str
    topics: int
    splits: bool = False
    lacks: str | None = None
    """The reason why nobody that lives, or that may, runs what is in it."""

    @property
    def moves(self) -> bool:
        return self.splits or self.owner != self.assigned


def bundle_views(
    bundles: Mapping[str, Bundles],
    assigned: Mapping[str, Assigned],
    claims: Mapping[str, Claim],
    topics: Iterable[str],
    up: Collection[str],
    policies: Policies,
    leaving: Collection[str] = (),
) -> list[BundleView]:
    """All bundles of all namespaces that have any, in order. `up` and `leaving`: the brokers that give signs of life."""
    counts = Counter(bundle_of(topic, bundles) for topic in topics if namespace_of_topic(topic) in bundles)
    found, allowed = [], Allowed(policies, dict.fromkeys(up, 0.0))
    for name in bundle_names(bundles):
        said, owner, count = assigned.get(name), owner_of(name, claims), counts[name]
        splits = said is not None and said.broker == NOBODY
        to = None if said is None or splits else said.broker
        no_topic = "no leader has placed its topics yet" if count else "no topic of it was found yet"
        is_wanted = count or said is not None
        lacks = _lacks(owner, to, {*up, *leaving}, allowed.always(namespace_of(name))) if is_wanted else None
        found.append(BundleView(name, owner, to, no_topic if said is None else said.reason, count, splits, lacks))
    return found


def _lacks(owner: str | None, to: str | None, up: Collection[str], allowed: Collection[str]) -> str | None:
    dead = next((broker for broker in (to, owner) if broker is not None and broker not in up), None)
    gone = None if dead is None else f"broker {dead} is not up"
    if not up:
        return f"{gone or 'nobody owns it'}, and no broker is: start one (geo broker)"
    if not allowed:
        nobody = "isolation lets no broker that is up own it: start one that it names, or change it (geo isolation list)"
        return nobody if gone is None else f"{gone}, and {nobody}"
    return gone and f"{gone}: start it again; the leader gives the bundle to another one meanwhile (geo brokers list)"


def refuse_unknown_bundle(name: str, bundles: Mapping[str, Bundles]) -> None:
    """Raises UsageError if there is no such bundle, which says in which ones its range lies now."""
    namespace, part = parse_bundle(name)
    if namespace not in bundles:
        raise UsageError(f"namespace {namespace} has no bundles; those that have: {', '.join(sorted(bundles)) or 'none yet'}")
    if part not in bundles[namespace].ranges:
        raise UsageError(f"there is no bundle {name}; its range lies in {', '.join(overlapping(name, bundles))}")


def refuse_unfit_broker(
    bundle: str, broker: str, up: Collection[str], allowed: Collection[str], owner: str | None, assigned: str
) -> None:
    """Raises UsageError if a bundle of this owner cannot be moved to the broker. `allowed` are those of the brokers that are `up` to
    which isolation leaves the bundle; none: then it does not count. `assigned`: who is to own it."""
    if broker not in up:
        raise UsageError(
            f"broker {show(broker)} is not up; those that are: {', '.join(sorted(up)) or 'none'}{suggestion(broker, up)}"
        )
    if broker == owner == assigned:
        raise UsageError(f"broker {broker} owns {bundle} already")
    if broker == assigned:
        raise UsageError(f"{bundle} is on its way to {broker} already; geo bundles list says where it is")
    if allowed and broker not in allowed:
        raise UsageError(
            f"isolation does not let broker {broker} own {bundle}; it lets {', '.join(sorted(allowed))} (geo isolation list)"
        )


def refuse_no_other_broker(bundle: str, up: Collection[str], allowed: Collection[str], assigned: str) -> None:
    """Raises UsageError if nobody else could have a bundle that this broker, who is to own it, is to give up."""
    if not set(up) - {assigned}:
        raise UsageError(f"no other broker is up that could own {bundle}: geo brokers list")
    if not set(allowed) - {assigned}:
        of = ", ".join(sorted(allowed)) or "no broker that is up"
        raise UsageError(f"isolation lets {of} own {bundle}, and nobody else (geo isolation list)")


def refuse_two_domains(domain: str, brokers: Iterable[str], domains: Mapping[str, Collection[str]]) -> None:
    """Raises UsageError if one of the brokers is in another failure domain, as Pulsar refuses it."""
    for broker in brokers:
        for other, those in domains.items():
            if other != domain and broker in those:
                raise UsageError(f"broker {broker} is in domain {other} already: set or remove that one first")


def split_positions(bundle: str, algorithm: str, positions: Sequence[int], topics: Iterable[str]) -> tuple[int, ...]:
    """Tells where a bundle is split. `topics` are the full names of those in it. Raises UsageError if that is nowhere."""
    _, (lower, upper) = parse_bundle(bundle)
    hashes = sorted(map(bundle_hash, topics))
    if algorithm == FLOW:
        raise UsageError(
            f"{FLOW} needs the load of each topic, and reports have that of bundles; take {TOPIC_COUNT} or --positions"
        )
    if algorithm == POSITIONS:
        if not positions:
            raise UsageError(f"{POSITIONS} needs --positions: hashes inside {lower:#010x} to {upper:#010x}")
        at = positions
    elif positions:
        raise UsageError(f"--positions are for --algorithm {POSITIONS}")
    else:
        at = topic_count_equally(hashes) if algorithm == TOPIC_COUNT else range_equally(lower, upper)
    if not (found := specified_positions(lower, upper, at)):
        has = f"; it has {counted(len(hashes), 'topic')}" if algorithm == TOPIC_COUNT else ""
        raise UsageError(f"bundle {bundle} cannot be split so: no position lies inside it{has}")
    return tuple(found)


def parts_of(bundle: str, at: Sequence[int], topics: Iterable[str]) -> dict[str, int]:
    """The parts of a bundle that is split at these positions, and how many of the topics, full names, are in each."""
    namespace, (lower, upper) = parse_bundle(bundle)
    whole = Bundles(sorted({FIRST, lower, *at, upper, LAST}))
    inside = [part for part in whole.ranges if lower <= part[0] and part[1] <= upper]
    counts = Counter(map(whole.bundle_of, topics))
    return {bundle_name(namespace, part): counts[part] for part in inside}


def forbidden(policies: Policies, assigned: Mapping[str, Assigned], usages: Mapping[str, float]) -> dict[str, list[str]]:
    """The bundles that these policies take from brokers that are up, and who may own each then. `usages` are those of the brokers that are
    up. (What another one has moves anyway.)"""
    found, allowed = {}, Allowed(policies, usages)
    for bundle, one in sorted(assigned.items()):
        namespace = namespace_of(bundle)
        if one.broker in usages and one.broker not in allowed.may_keep(namespace):
            found[bundle] = allowed.brokers(namespace)
    return found


def brokers_for(isolation: Isolation, namespaces: Iterable[str], usages: Mapping[str, float]) -> dict[str, list[str]]:
    """Namespaces that the policy is of, and the brokers that are up that it lets own each."""
    return {name: isolation.brokers(usages) for name in sorted(namespaces) if isolation.matches(name)}


def brokers_of(namespace: str, assigned: Mapping[str, Assigned]) -> list[str]:
    """Names who is to own bundles of a namespace."""
    return sorted({one.broker for bundle, one in assigned.items() if namespace_of(bundle) == namespace and one.broker != NOBODY})


@dataclass(frozen=True, slots=True)
class Became:
    """State of a request so far. `ends`: nothing more will become of it. `done`: it is as it was asked."""

    ends: bool
    done: bool
    says: str


def became(
    request: BundleRequest,
    before: str,
    bundles: Mapping[str, Bundles],
    assigned: Mapping[str, Assigned],
    claims: Mapping[str, Claim],
) -> Became:
    """`before`: who was to own the bundle when it was asked for."""
    bundle, said, owner = request.bundle, assigned.get(request.bundle), owner_of(request.bundle, claims)
    if (parts := overlapping(bundle, bundles)) != [bundle]:
        into = "it was split into " + ", ".join(f"{name} ({owner_of(name, claims) or 'nobody'})" for name in parts)
        if request.action != SPLIT:
            return Became(ends=True, done=False, says=f"{into} meanwhile; ask for one of these")
        to = {name: assigned[name].broker for name in parts if name in assigned}
        if to and all(owner_of(name, claims) == broker for name, broker in to.items()):
            return Became(ends=True, done=True, says=into)
        return Became(ends=False, done=True, says=f"{into}; not all that has topics is owned yet")
    if said is None or said.request < request.number:
        return Became(ends=False, done=False, says="no leader has followed yet (geo brokers list says who leads)")
    if said.broker == NOBODY:
        return Became(ends=False, done=False, says=f"it is split once {owner or 'nobody'} has released it")
    if owner != said.broker:
        return Became(ends=False, done=False, says=f"it is on its way from {owner or 'nobody'} to {said.broker}")
    if request.action == SPLIT:
        why = "it was not released in time, or another broker leads now"
        return Became(ends=True, done=False, says=f"it was not split: {why}. {owner} owns it; ask again")
    if owner == request.broker if request.action == TRANSFER else owner != before:
        return Became(ends=True, done=True, says=f"{owner} owns it, {said.reason}")
    why = f"{request.broker} was not up" if request.action == TRANSFER else "no other broker could have it"
    return Became(ends=True, done=False, says=f"{owner} owns it: {why} when the leader looked, or it has moved again since")


def once_each(
    reports: Mapping[str, BrokerLoad], loaded_at: Mapping[str, float], owners: Mapping[str, str | None]
) -> dict[str, BrokerLoad]:
    """The reports, so that each bundle is in one of them alone. Reports are of different moments, and a bundle that has moved may be in two. Its
    owner's counts, else the newest. `loaded_at` are the reports' times in seconds, `owners` is by bundle."""
    holders: dict[str, str] = {}
    for broker in sorted(reports, key=lambda name: (loaded_at[name], name)):
        for bundle in reports[broker].bundles:
            if holders.get(bundle) is None or holders[bundle] != owners.get(bundle):
                holders[bundle] = broker
    return {
        broker: load.with_bundles({bundle: of for bundle, of in load.bundles.items() if holders[bundle] == broker})
        for broker, load in reports.items()
    }


SILENT = "silent"
"""The state of a broker that gives no sign of life."""


def told_state(state: str, silent_s: float, timeout_s: float, *, has_left: bool) -> str:
    """A broker's state by its newest row, which is `silent_s` old: what the row says, or that the broker is silent."""
    return state if has_left or silent_s <= timeout_s else SILENT
