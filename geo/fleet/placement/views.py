"""What is told of brokers and bundles, and what is refused that people ask of them. Pure: no Spark, clock, random or I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from geo.config.yaml_nodes import suggestion
from geo.errors import UsageError
from geo.fleet.placement.bundles import Bundles, Range, bundle_hash, bundle_name, namespace_of, parse_bundle
from geo.fleet.placement.handover import Assigned, Claim
from geo.fleet.placement.leading import NOBODY, bundle_of, namespace_of_topic
from geo.fleet.placement.policies import Policies
from geo.fleet.placement.splitting import range_equally, specified_positions, topic_count_equally
from geo.text import counted, show

RANGE, TOPIC_COUNT, POSITIONS = "range_equally_divide", "topic_count_equally_divide", "specified_positions_divide"
SPLIT_ALGORITHMS = (RANGE, TOPIC_COUNT, POSITIONS)
"""Pulsar's names, its default first. (flow_or_qps_equally_divide needs the load of each topic, of which reports say nothing.)"""


@dataclass(frozen=True, slots=True)
class BundleView:
    """A bundle: who owns it now, who is to, and why. An owner None: nobody."""

    bundle: str
    owner: str | None
    assigned: str | None
    why: str
    topics: int

    @property
    def moves(self) -> bool:
        return self.owner != self.assigned


def bundle_views(
    bundles: Mapping[str, Bundles], assigned: Mapping[str, Assigned], claims: Mapping[str, Claim], topics: Iterable[str]
) -> list[BundleView]:
    """All bundles of all namespaces that have any, in order."""
    counts = dict[str, int]()
    for topic in topics:
        if namespace_of_topic(topic) in bundles:
            name = bundle_of(topic, bundles)
            counts[name] = counts.get(name, 0) + 1
    found = []
    for namespace in sorted(bundles):
        for part in bundles[namespace].ranges:
            name = bundle_name(namespace, part)
            said, claim = assigned.get(name), claims.get(name)
            owner = None if claim is None or claim.released else claim.broker
            to = None if said is None or said.broker == NOBODY else said.broker
            found.append(
                BundleView(
                    name, owner, to, said.reason if said is not None else "no topic of it was found yet", counts.get(name, 0)
                )
            )
    return found


def refuse_unknown_bundle(name: str, bundles: Mapping[str, Bundles]) -> None:
    """Raises UsageError if there is no such bundle, which says in which ones its range lies now."""
    namespace, part = parse_bundle(name)
    if namespace not in bundles:
        raise UsageError(f"namespace {namespace} has no bundles; those that have: {', '.join(sorted(bundles)) or 'none yet'}")
    if part not in bundles[namespace].ranges:
        over = ", ".join(bundle_name(namespace, other) for other in bundles[namespace].ranges if _overlap(part, other))
        raise UsageError(f"there is no bundle {name}; its range lies in {over}")


def refuse_unfit_broker(broker: str, up: Collection[str], owner: str | None) -> None:
    """Raises UsageError if a bundle of this owner cannot be moved to the broker."""
    if broker not in up:
        raise UsageError(
            f"broker {show(broker)} is not up; those that are: {', '.join(sorted(up)) or 'none'}{suggestion(broker, up)}"
        )
    if broker == owner:
        raise UsageError(f"broker {broker} owns it already")


def split_positions(bundle: str, algorithm: str, positions: Sequence[int], topics: Iterable[str]) -> tuple[int, ...]:
    """Where a bundle is split. `topics` are the full names of those in it. Raises UsageError if that is nowhere."""
    _, (lower, upper) = parse_bundle(bundle)
    hashes = sorted(map(bundle_hash, topics))
    if algorithm == POSITIONS:
        at = specified_positions(lower, upper, positions)
    elif positions:
        raise UsageError(f"--positions are for --algorithm {POSITIONS}")
    else:
        at = topic_count_equally(hashes) if algorithm == TOPIC_COUNT else range_equally(lower, upper)
    at = [position for position in at if lower < position < upper]
    if not at:
        has = f"; it has {counted(len(hashes), 'topic')}" if algorithm == TOPIC_COUNT else ""
        raise UsageError(f"bundle {bundle} cannot be split so: no position lies inside it{has}")
    return tuple(at)


def forbidden(policies: Policies, assigned: Mapping[str, Assigned], usages: Mapping[str, float]) -> dict[str, list[str]]:
    """The bundles that these policies take from their brokers, and who may own each then. `usages` are those of the brokers that are up."""
    found = {}
    for bundle, one in sorted(assigned.items()):
        allowed = policies.brokers(usages, namespace_of(bundle), usages)
        if one.broker != NOBODY and one.broker not in allowed:
            found[bundle] = allowed
    return found


def _overlap(one: Range, other: Range) -> bool:
    return one[0] < other[1] and other[0] < one[1]
