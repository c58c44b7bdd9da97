"""`geo bundles`: the parts of namespaces that brokers own."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any

from geo.asking import ask_all
from geo.cli.arguments import Verbs, add_dry_run, add_engine, seconds
from geo.cli.brokers import placement_of, refuse_unknown_broker, state_of, usages_of
from geo.cli.output import Output
from geo.cli.running import LookedAt, load_for
from geo.config.model import Config
from geo.config.placement import Placement
from geo.errors import UsageError
from geo.faults import faults_here
from geo.fleet.assignments import read_assignments, read_bundles, read_owners
from geo.fleet.load_reports import LEAVING, names_of, read_reports
from geo.fleet.placement.bundles import Bundles, bundle_of, namespace_of, namespace_of_topic, parse_bundle
from geo.fleet.placement.handover import Assigned, Claim
from geo.fleet.placement.leading import NOBODY, SPLIT, TRANSFER, UNLOAD, BundleRequest
from geo.fleet.placement.policies import Allowed, Policies
from geo.fleet.placement.views import (
    FLOW,
    POSITIONS,
    RANGE,
    SPLIT_ALGORITHMS,
    TOPIC_COUNT,
    Became,
    BundleView,
    became,
    bundle_views,
    owner_of,
    parts_of,
    refuse_no_other_broker,
    refuse_unfit_broker,
    refuse_unknown_bundle,
    split_positions,
)
from geo.fleet.placement_requests import ask, policies_of, read_policies
from geo.journal.cluster import ClusterTables
from geo.log.housekeeping import open_for_writing
from geo.log.topics import Registered, deleted_topics, registered_topics
from geo.names import Topic, check_namespace
from geo.replication.absent_regions import refuse_gone
from geo.replication.carried import replicates
from geo.text import counted, first_line
from geo.times import shown_time

log = logging.getLogger(__name__)

_WAIT_S, _LOOK_S = 60.0, 0.5

_ANSWER_S = 10.0
"""Seconds that the registry of a link's source is waited for."""


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
            does = f"where (default: {RANGE}, the middle; with --positions {POSITIONS}); {FLOW} is refused: reports have no load of topics"
            p.add_argument("--algorithm", choices=SPLIT_ALGORITHMS, metavar="NAME", help=f"{', '.join(SPLIT_ALGORITHMS)}: {does}")
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
    """Tables of bundles as they are now. `brokers` are all that are known, `usages` are those of the brokers that are up."""

    bundles: Mapping[str, Bundles]
    assigned: Mapping[str, Assigned]
    claims: Mapping[str, Claim]
    since: Mapping[str, datetime]
    brokers: Collection[str]
    usages: Mapping[str, float]
    policies: Policies
    leaving: Collection[str]

    @classmethod
    def of(cls, tables: ClusterTables, placement: Placement) -> _Seen:
        reports, owners = read_reports(tables), read_owners(tables)
        usages = usages_of(tables, reports, placement)
        leaving = [name for name, one in reports.items() if state_of(tables, one, placement.broker_timeout_s) == LEAVING]
        since = {bundle: one.since for bundle, one in owners.bundles.items()}
        claims, policies = owners.claims(names_of(reports)), policies_of(read_policies(tables))
        return cls(read_bundles(tables), read_assignments(tables), claims, since, reports, usages, policies, leaving)

    def views(self, topics: Iterable[str]) -> list[BundleView]:
        return bundle_views(self.bundles, self.assigned, self.claims, topics, self.usages, self.policies, self.leaving)


def _topics(config: Config, target: str, tables_of: Callable[[str], ClusterTables]) -> set[str]:
    """The full names of the topics that a cluster has, and of those that its links are to replicate from sources that can be
    read.
    """
    tables = tables_of(target)
    found, gone = {one.topic for one in registered_topics(tables)}, deleted_topics(tables)
    sources = {link.source: partial(_registered, tables_of(link.source)) for link in config.inbound(target)}
    for source, answer in ask_all(sources, _ANSWER_S).items():
        try:
            registered = answer.result()
        except faults_here() as error:
            log.warning("%s cannot be read, so topics that it alone has are not counted: %s", source, first_line(error))
            continue
        links = [link for link in config.inbound(target) if link.source == source]
        found |= {one.topic for one in registered if any(replicates(config, link, one) for link in links)}
    return {str(topic) for topic in found - gone}


def _registered(tables: ClusterTables) -> list[Registered]:
    tables.refuse_no_folder()
    return registered_topics(tables)


def _look(args: argparse.Namespace) -> tuple[_Seen, set[str], Mapping[str, ClusterTables]]:
    config = load_for(args)
    placement, clusters = placement_of(config), LookedAt("geo bundles", config, args.engine).clusters
    return _Seen.of(clusters[args.cluster], placement), _topics(config, args.cluster, clusters.__getitem__), clusters


def list_bundles(args: argparse.Namespace, output: Output) -> int:
    if args.namespace is not None:
        check_namespace(args.namespace)
    seen, topics, clusters = _look(args)
    if args.broker is not None:
        refuse_unknown_broker(args.cluster, args.broker, seen.brokers)
    views = [
        one
        for one in seen.views(topics)
        if args.namespace in (None, namespace_of(one.bundle)) and args.broker in (None, one.owner, one.assigned)
    ]
    output.data([_fields(one, seen) for one in views])
    output.table(
        ("BUNDLE", "OWNER", "SINCE", "TOPICS", "MOVES TO", "WHY"),
        [(v.bundle, v.owner or "nobody", _since(v, seen), v.topics, _moves_to(v), v.why) for v in views],
    )
    refuse_gone(clusters[args.cluster], clusters.values())  # once what is there has been shown
    if not views:
        output.text(f"no bundle of {args.cluster} matches; the first are made when a broker that leads finds topics")
    output.text(*(f"{view.bundle}: {view.lacks}" for view in views if view.lacks is not None))
    return int(any(view.lacks is not None for view in views))


def _moves_to(one: BundleView) -> str:
    return "" if not one.moves else "its parts" if one.splits else one.assigned or "nobody"


def _fields(one: BundleView, seen: _Seen) -> dict[str, Any]:
    said = seen.assigned.get(one.bundle)
    assigned_since = None if said is None else datetime.fromtimestamp(said.since, timezone.utc)
    return {"bundle": one.bundle, "owner": one.owner, "since": seen.since.get(one.bundle) if one.owner else None,
            "assigned": one.assigned, "assigned_since": assigned_since, "moves": one.moves, "splits": one.splits, "why": one.why,
            "topics": one.topics, "lacks": one.lacks}  # fmt: skip


def _since(one: BundleView, seen: _Seen) -> str:
    return shown_time(seen.since[one.bundle]) if one.owner else ""


def lookup(args: argparse.Namespace, output: Output) -> int:
    topic = Topic.parse(args.topic)
    seen, topics, _ = _look(args)
    namespace = namespace_of_topic(str(topic))
    if namespace not in seen.bundles:
        raise UsageError(
            f"namespace {namespace} has no bundles in {args.cluster} yet: no broker that leads has found a topic of it"
        )
    name = bundle_of(str(topic), seen.bundles)
    one = next(view for view in seen.views(topics) if view.bundle == name)
    is_known = str(topic) in topics
    output.data({"topic": str(topic), "known": is_known, **_fields(one, seen)})
    owner = f"owned by {one.owner} since {_since(one, seen)}" if one.owner else "owned by nobody now"
    moves = f"; it moves to {_moves_to(one)}" if one.moves else ""
    moves += "" if one.lacks is None else f"; {one.lacks}"
    unknown = "" if is_known else f" ({args.cluster} has no such topic yet, and no link brings one)"
    output.text(f"{topic}: bundle {name}, {owner}{moves}: {one.why}{unknown}")
    return int(one.lacks is not None)


def ask_for(args: argparse.Namespace, output: Output) -> int:
    config = load_for(args)
    placement, bundle, action = placement_of(config), args.bundle, args.action
    namespace, _ = parse_bundle(bundle)
    clusters = LookedAt("geo bundles", config, "auto").clusters  # what is refused or rehearsed mostly needs no Spark
    tables = open_for_writing(clusters[args.cluster], config, rehearsal=args.dry_run)
    seen = _Seen.of(tables, placement)
    refuse_unknown_bundle(bundle, seen.bundles)
    said, owner = seen.assigned.get(bundle), owner_of(bundle, seen.claims)
    if said is None:
        raise UsageError(f"bundle {bundle} has no topic yet, so nobody owns it")
    if said.broker == NOBODY:
        raise UsageError(f"bundle {bundle} is about to be split: look in some seconds which there are (geo bundles list)")
    positions: tuple[int, ...] = ()
    inside: list[str] = []
    allowed = Allowed(seen.policies, seen.usages).brokers(namespace)
    if action == TRANSFER:
        refuse_unfit_broker(bundle, args.broker, seen.usages, allowed, owner, said.broker)
    elif action == UNLOAD:
        refuse_no_other_broker(bundle, seen.usages, allowed, said.broker)
    else:
        algorithm = args.algorithm or (POSITIONS if args.positions else RANGE)
        look = algorithm == TOPIC_COUNT or args.dry_run
        topics = _topics(config, args.cluster, clusters.__getitem__) if look else ()
        inside = [
            topic for topic in topics if namespace_of_topic(topic) == namespace and bundle_of(topic, seen.bundles) == bundle
        ]
        positions = split_positions(bundle, algorithm, args.positions, inside)
    broker: str | None = args.broker if action == TRANSFER else None
    at = f" at {', '.join(f'{position:#010x}' for position in positions)}" if positions else ""
    what = f"{action} bundle {bundle}{f' to {broker}' if broker else ''}{at}"
    fields = {"bundle": bundle, "action": action, "broker": broker, "positions": list(positions) or None, "owner": owner}
    if args.dry_run:
        parts = parts_of(bundle, positions, inside) if action == SPLIT else None
        may_own = sorted(set(allowed) - {said.broker}) if action == UNLOAD else None
        output.data({**fields, "dry_run": True, "parts": parts, "may_own": may_own})
        output.text(f"would ask to {what}, which {owner or 'nobody'} owns; nothing was written")
        for part, count in (parts or {}).items():
            output.text(f"- {part}: {counted(count, 'topic')}")
        if may_own is not None:
            output.text(f"- it may go to {', '.join(may_own)}")
        return 0
    number = ask(tables, bundle, action, broker=broker, positions=positions)
    request = BundleRequest(bundle, action, number, broker or "", positions)
    told = _wait(tables, placement, request, said.broker, args.wait)
    output.data({**fields, "dry_run": False, "done": told.ends and told.done, "became": told.says})
    if args.wait == 0:
        leads = read_owners(tables).leader(names_of(read_reports(tables))) is not None
        then = "the leader follows within seconds" if leads else "nobody leads now, and whoever does next follows"
        output.text(f"asked to {what}; {then}")
    else:
        late = "" if told.ends else f"not done within {args.wait:g} s: "
        output.text(f"asked to {what}: {late}{told.says}")
    return 0 if args.wait == 0 or (told.ends and told.done) else 1


def _wait(tables: ClusterTables, placement: Placement, request: BundleRequest, before: str, wait_s: float) -> Became:
    """Waits for the end of the request, or for so long, and returns what has become of it."""
    deadline = time.monotonic() + wait_s
    while True:
        seen = _Seen.of(tables, placement)
        told = became(request, before, seen.bundles, seen.assigned, seen.claims)
        if told.ends or time.monotonic() >= deadline:
            return told
        time.sleep(_LOOK_S)
