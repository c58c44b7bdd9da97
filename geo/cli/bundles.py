"""`geo bundles`: the parts of namespaces that brokers own."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from geo.cli.arguments import Verbs, add_dry_run, add_engine, seconds
from geo.cli.brokers import looked_at, placement_of, state_of
from geo.cli.output import Output
from geo.cli.running import start_spark
from geo.config import load
from geo.config.placement import Placement
from geo.errors import UsageError
from geo.fleet.assignments import read_assignments, read_bundles, read_owners
from geo.fleet.load_reports import UP, names_of, read_reports
from geo.fleet.placement.bundles import Bundles, namespace_of
from geo.fleet.placement.handover import Assigned, Claim
from geo.fleet.placement.leading import SPLIT, TRANSFER, UNLOAD, bundle_of, namespace_of_topic
from geo.fleet.placement.views import (
    POSITIONS,
    RANGE,
    SPLIT_ALGORITHMS,
    BundleView,
    bundle_views,
    refuse_unfit_broker,
    refuse_unknown_bundle,
    split_positions,
)
from geo.fleet.placement_requests import ask
from geo.log.housekeeping import open_for_writing
from geo.log.topics import registered_topics
from geo.names import Topic
from geo.tables.cluster import ClusterTables, connect

_WAIT_S, _LOOK_S = 60.0, 0.5


def add_bundles(verbs: Verbs, does: str) -> None:
    nouns = verbs.add_noun("bundles", does)
    p = nouns.add("list", "list bundles: who owns each, who is to, and why", list_bundles)
    _add_cluster(p)
    add_engine(p)
    p.add_argument("--namespace", metavar="TENANT/NAMESPACE", help="only of this one")
    p.add_argument("--broker", metavar="NAME", help="only what this broker owns or is to own")
    p = nouns.add("lookup", "say which bundle a topic is in, who owns it, since when and why", lookup)
    _add_cluster(p)
    add_engine(p)
    p.add_argument("--topic", required=True)
    for action, does in _ASKED.items():
        p = nouns.add(action, does, ask_for)
        p.set_defaults(action=action)
        _add_cluster(p)
        p.add_argument("--bundle", required=True, metavar="BUNDLE", help="tenant/namespace/0x00000000_0x40000000")
        if action == TRANSFER:
            p.add_argument("--broker", required=True, metavar="NAME", help="to whom")
        if action == SPLIT:
            p.add_argument("--algorithm", choices=SPLIT_ALGORITHMS, help=f"where (default: {RANGE}, the middle)")
            p.add_argument(
                "--positions", type=_positions, default=(), metavar="P,P", help="hashes at which it is split, as numbers or 0x…"
            )
        add_dry_run(p, "say what would be asked, write nothing")
        does = "how long to wait until it is done (default: %(default)s); 0: do not wait"
        p.add_argument("--wait", type=seconds, default=_WAIT_S, metavar="SECONDS", help=does)


_ASKED = {
    UNLOAD: "let the owner of a bundle give it up, to whichever broker the leader chooses",
    TRANSFER: "let a bundle go to a broker",
    SPLIT: "split a bundle; its topics rest for some seconds, and its parts are placed anew",
}


def _add_cluster(p: argparse.ArgumentParser) -> None:
    p.add_argument("--cluster", required=True, help="the cluster whose bundles they are")


def _positions(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part, 0) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError("numbers such as 1073741824,0x80000000") from None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the tables say of bundles now."""

    bundles: Mapping[str, Bundles]
    assigned: Mapping[str, Assigned]
    claims: Mapping[str, Claim]
    since: Mapping[str, datetime]
    up: frozenset[str]

    @classmethod
    def of(cls, tables: ClusterTables, placement: Placement) -> _Seen:
        reports, owners = read_reports(tables), read_owners(tables)
        up = frozenset(name for name, one in reports.items() if state_of(one, placement.broker_timeout_s) == UP)
        since = {bundle: one.since for bundle, one in owners.bundles.items()}
        return cls(read_bundles(tables), read_assignments(tables), owners.claims(names_of(reports)), since, up)

    def views(self, topics: Sequence[Topic]) -> list[BundleView]:
        return bundle_views(self.bundles, self.assigned, self.claims, map(str, topics))


def _topics(tables: ClusterTables) -> list[Topic]:
    return [one.topic for one in registered_topics(tables)]


def list_bundles(args: argparse.Namespace, output: Output) -> int:
    tables, placement = looked_at(args)
    seen = _Seen.of(tables, placement)
    views = [
        one
        for one in seen.views(_topics(tables))
        if args.namespace in (None, namespace_of(one.bundle)) and args.broker in (None, one.owner, one.assigned)
    ]
    output.data([_fields(one, seen) for one in views])
    output.table(
        ("BUNDLE", "OWNER", "SINCE", "TOPICS", "MOVES TO", "WHY"),
        [
            (v.bundle, v.owner or "nobody", _since(v, seen), v.topics, (v.assigned or "nobody") if v.moves else "", v.why)
            for v in views
        ],
    )
    if not views:
        output.text(f"no bundle of {args.cluster} matches; the first are made when a broker that leads finds topics")
    return 0


def _fields(one: BundleView, seen: _Seen) -> dict[str, Any]:
    return {"bundle": one.bundle, "owner": one.owner, "since": seen.since.get(one.bundle) if one.owner else None,
            "assigned": one.assigned, "moves": one.moves, "why": one.why, "topics": one.topics}  # fmt: skip


def _since(one: BundleView, seen: _Seen) -> str:
    return f"{seen.since[one.bundle].astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}" if one.owner else ""


def lookup(args: argparse.Namespace, output: Output) -> int:
    topic = Topic.parse(args.topic)
    tables, placement = looked_at(args)
    seen = _Seen.of(tables, placement)
    namespace = namespace_of_topic(str(topic))
    if namespace not in seen.bundles:
        raise UsageError(
            f"namespace {namespace} has no bundles in {args.cluster} yet: no broker that leads has found a topic of it"
        )
    name = bundle_of(str(topic), seen.bundles)
    one = next(view for view in seen.views(_topics(tables)) if view.bundle == name)
    output.data({"topic": str(topic), **_fields(one, seen)})
    owner = f"owned by {one.owner} since {_since(one, seen)} UTC" if one.owner else "owned by nobody now"
    moves = f"; it moves to {one.assigned or 'nobody'}" if one.moves else ""
    output.text(f"{topic}: bundle {name}, {owner}{moves}: {one.why}")
    return 0


def ask_for(args: argparse.Namespace, output: Output) -> int:
    config = load(args.config)
    config.cluster(args.cluster)
    placement, bundle, action = placement_of(config), args.bundle, args.action
    tables = open_for_writing(connect(start_spark("geo bundles"), config.cluster(args.cluster)), config)
    seen = _Seen.of(tables, placement)
    refuse_unknown_bundle(bundle, seen.bundles)
    said, claim = seen.assigned.get(bundle), seen.claims.get(bundle)
    if said is None:
        raise UsageError(f"bundle {bundle} has no topic yet, so nobody owns it")
    owner = None if claim is None or claim.released else claim.broker
    positions: tuple[int, ...] = ()
    if action == TRANSFER:
        refuse_unfit_broker(args.broker, seen.up, owner)
    elif action == UNLOAD and not seen.up - {owner}:
        raise UsageError(f"no other broker is up that could own {bundle}")
    elif action == SPLIT:
        algorithm = args.algorithm or (POSITIONS if args.positions else RANGE)
        inside = [str(topic) for topic in _topics(tables) if _is_in(topic, bundle, seen)]
        positions = split_positions(bundle, algorithm, args.positions, inside)
    to = f" to {args.broker}" if action == TRANSFER else ""
    at = f" at {', '.join(f'{position:#010x}' for position in positions)}" if positions else ""
    what = f"{action} bundle {bundle}{to}{at}"
    fields = {"bundle": bundle, "action": action, "broker": getattr(args, "broker", None), "positions": list(positions) or None}
    if args.dry_run:
        output.data({**fields, "owner": owner, "dry_run": True})
        output.text(f"would ask to {what}, which {owner or 'nobody'} owns; nothing was written")
        return 0
    number = ask(tables, bundle, action, broker=getattr(args, "broker", None), positions=positions)
    became = _became(tables, placement, bundle, action, number, args.wait)
    output.data({**fields, "owner": owner, "dry_run": False, "done": became is not None, "became": became})
    if args.wait == 0:
        output.text(f"asked to {what}; the leader follows within seconds")
    elif became is None:
        output.text(f"asked to {what}; it is not done within {args.wait:.0f} s. Whether a broker leads: geo brokers list")
    else:
        output.text(f"asked to {what}: {became}")
    return 0 if became is not None or args.wait == 0 else 1


def _is_in(topic: Topic, bundle: str, seen: _Seen) -> bool:
    return namespace_of_topic(str(topic)) == namespace_of(bundle) and bundle_of(str(topic), seen.bundles) == bundle


def _became(tables: ClusterTables, placement: Placement, bundle: str, action: str, number: int, wait_s: float) -> str | None:
    """What became of the request, once something has; None if nothing did in the time."""
    deadline = time.monotonic() + wait_s
    while True:
        seen = _Seen.of(tables, placement)
        there = {view.bundle: view for view in seen.views(())}
        if action == SPLIT and bundle not in there:
            return "it was split; its parts are placed"
        said = seen.assigned.get(bundle)
        if action != SPLIT and said is not None and said.request >= number and bundle in there and not there[bundle].moves:
            return f"{there[bundle].owner} owns it, {said.reason}"
        if time.monotonic() >= deadline:
            return None
        time.sleep(_LOOK_S)
