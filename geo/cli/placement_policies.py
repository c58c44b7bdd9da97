"""`geo isolation`, `geo domains`, `geo anti-affinity`: the policies by which bundles are placed (Pulsar's ns-isolation-policy, failure-domains
and anti-affinity groups)."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from geo.cli.arguments import Verbs, add_dry_run, add_engine, from_1_to
from geo.cli.brokers import looked_at, placement_of, usages_of
from geo.cli.output import Output
from geo.cli.running import LookedAt, load_for
from geo.config.placement import Placement
from geo.config.yaml_nodes import suggestion
from geo.errors import UsageError
from geo.fleet.assignments import read_assignments, read_bundles
from geo.fleet.load_reports import read_reports
from geo.fleet.placement.policies import Isolation
from geo.fleet.placement.views import brokers_for, brokers_of, forbidden, refuse_two_domains
from geo.fleet.placement_requests import ANTI_AFFINITY, DOMAIN, ISOLATION, policies_of, read_policies, set_policy
from geo.journal.cluster import ClusterTables
from geo.log.housekeeping import open_for_writing
from geo.names import check_broker, check_namespace
from geo.text import counted, show

_MOST_BROKERS = 10_000


def add_isolation(verbs: Verbs, does: str) -> None:
    _, p = _add_nouns(verbs, "isolation", ISOLATION, does, "a name for the policy", _isolation)
    p.add_argument("--namespaces", nargs="+", required=True, metavar="RE", help="of which namespaces, tenant/namespace")
    p.add_argument("--primary", nargs="+", required=True, metavar="RE", help="the brokers that serve them, and no others")
    p.add_argument(
        "--secondary", nargs="+", default=[], metavar="RE", help="the brokers that join where there are too few primary ones"
    )
    number = from_1_to(_MOST_BROKERS, f"a number from 1 to {_MOST_BROKERS:,}")
    does = "secondary ones join while fewer primary ones are up (default: %(default)s)"
    p.add_argument("--min-limit", type=number, default=1, metavar="N", help=does)
    percent = from_1_to(100, "a number from 1 to 100")
    does = (
        "a primary broker that is so busy does not count; secondary ones give back below four fifths of it (default: %(default)s)"
    )
    p.add_argument("--usage-threshold", type=percent, default=100, metavar="PERCENT", help=does)


def add_domains(verbs: Verbs, does: str) -> None:
    _, p = _add_nouns(verbs, "domains", DOMAIN, does, "the domain", _domain)
    p.add_argument("--brokers", required=True, metavar="NAME,NAME", help="the brokers that are in it")


def add_anti_affinity(verbs: Verbs, does: str) -> None:
    nouns, p = _add_nouns(verbs, "anti-affinity", ANTI_AFFINITY, does, "the namespace, tenant/namespace", _group)
    does = "its namespaces are to be on different brokers, as far as there are more brokers than bundles that have topics"
    p.add_argument("--group", required=True, metavar="NAME", help=does)
    p = nouns.add("namespaces", "list the namespaces of a group, and the brokers that are to own bundles of each", list_policies)
    _add_cluster(p, ANTI_AFFINITY)
    add_engine(p)
    p.add_argument("--group", required=True, metavar="NAME")


def _add_nouns(
    verbs: Verbs, noun: str, kind: str, does: str, name: str, made: Callable[[argparse.Namespace], dict[str, Any]]
) -> tuple[Verbs, argparse.ArgumentParser]:
    """Returns the noun, and its verb `set`."""
    nouns = verbs.add_noun(noun, does)
    p = nouns.add("list", f"list {noun}", list_policies)
    _add_cluster(p, kind)
    p.set_defaults(group=None)
    add_engine(p)
    for verb, done, what, value in (
        ("remove", "removed", "remove one", lambda _: None),
        ("set", "set", "set one, or replace it", made),
    ):
        p = nouns.add(verb, f"{what}; {_FOLLOWED}", change)
        _add_cluster(p, kind)
        p.set_defaults(made=value)
        p.add_argument("name", help=name)
        add_dry_run(p, f"say what would be {done}, and which bundles isolation would move; write nothing")
    return nouns, p


_FOLLOWED = "the broker that leads follows within seconds"


def _add_cluster(p: argparse.ArgumentParser, kind: str) -> None:
    p.add_argument("--cluster", required=True, help="the cluster whose brokers it is about")
    p.set_defaults(kind=kind)


def _isolation(args: argparse.Namespace) -> dict[str, Any]:
    value = {"namespaces": args.namespaces, "primary": args.primary, "secondary": args.secondary,
             "min_limit": args.min_limit, "usage_threshold": args.usage_threshold}  # fmt: skip
    Isolation(**value)  # raises UsageError
    return value


def _domain(args: argparse.Namespace) -> dict[str, Any]:
    brokers = [check_broker(name) for name in args.brokers.split(",")]
    return {"brokers": sorted(set(brokers))}


def _group(args: argparse.Namespace) -> dict[str, Any]:
    check_namespace(args.name)
    if not args.group.strip():
        raise UsageError("--group is empty; expected: a name that the namespaces of the group share")
    return {"group": args.group}


def list_policies(args: argparse.Namespace, output: Output) -> int:
    clusters, placement = looked_at(args)
    tables = clusters[args.cluster]
    found = {
        name: value
        for (kind, name), value in read_policies(tables).items()
        if kind == args.kind and args.group in (None, value.get("group"))
    }
    now = _now(tables, placement, args.kind, found)
    output.data([{"name": name, **value, **now.get(name, {})} for name, value in found.items()])
    for name, value in found.items():
        output.text(f"{name}: {_told(value)}{_told_now(now.get(name, {}))}")
    if not found:
        output.text(f"{args.cluster} has none" + ("" if args.group is None else f" in group {show(args.group)}"))
    return 0


def _now(
    tables: ClusterTables, placement: Placement, kind: str, found: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Derives what follows of policies now: of isolation the brokers that may own the namespaces that have bundles, of
    anti-affinity those that are to.
    """
    if kind == ANTI_AFFINITY:
        assigned = read_assignments(tables)
        return {name: {"brokers": brokers_of(name, assigned)} for name in found}
    now: dict[str, dict[str, Any]] = {}
    if kind == ISOLATION:
        namespaces, usages = read_bundles(tables), usages_of(tables, read_reports(tables), placement)
        for name, value in found.items():
            with suppress(UsageError, TypeError):  # of a newer program
                now[name] = {"may_own": brokers_for(Isolation(**value), namespaces, usages)}
    return now


def _told_now(now: Mapping[str, Any]) -> str:
    if "may_own" in now:
        each = (f"{', '.join(brokers) or 'nobody that is up'} may own {of}" for of, brokers in now["may_own"].items())
        return f". Now: {'; '.join(each) or 'of no namespace that has bundles'}"
    return f". Now: on {', '.join(now['brokers']) or 'no broker'}" if "brokers" in now else ""


def _told(value: Mapping[str, Any]) -> str:
    parts = (f"{key.replace('_', ' ')} {', '.join(each) if isinstance(each, list) else each}" for key, each in value.items())
    return "; ".join(part for part in parts if not part.endswith(" "))


def change(args: argparse.Namespace, output: Output) -> int:
    value, config = args.made(args), load_for(args)
    placement = placement_of(config)
    tables = open_for_writing(LookedAt("geo placement", config, "auto").clusters[args.cluster], config, rehearsal=args.dry_run)
    found = read_policies(tables)
    key = (args.kind, args.name)
    if value is not None and args.kind == DOMAIN:
        others = {name: of.get("brokers", ()) for (kind, name), of in found.items() if kind == DOMAIN}
        refuse_two_domains(args.name, value["brokers"], others)
    if value is None and key not in found:
        there = [name for kind, name in found if kind == args.kind]
        raise UsageError(
            f"{args.cluster} has no {args.kind} {args.name}; there are: {', '.join(there) or 'none'}{suggestion(args.name, there)}"
        )
    after = {other: of for other, of in found.items() if other != key}
    if value is not None:
        after[key] = value  # the last now: of several isolations the first that matches counts
    moves = (
        {}
        if args.kind != ISOLATION
        else forbidden(policies_of(after), read_assignments(tables), usages_of(tables, read_reports(tables), placement))
    )
    if not args.dry_run:
        set_policy(tables, args.kind, args.name, value)
    output.data({"kind": args.kind, "name": args.name, "value": value, "moves": moves, "dry_run": args.dry_run})
    would = "would be " if args.dry_run else ""
    what = "removed" if value is None else f"set: {_told(value)}"
    move = sum(bool(allowed) for allowed in moves.values())
    then = (
        f". By isolation {counted(move, 'bundle')} then {'has' if move == 1 else 'have'} to move"
        if args.kind == ISOLATION
        else ""
    )
    output.text(f"{args.kind} {args.name}: {would}{what}{then}")
    for bundle, allowed in moves.items():
        output.text(f"- {bundle}: may be owned by {', '.join(allowed) or 'no broker that is up, so it stays'}")
    if args.kind == DOMAIN and not placement.settings.failure_domains_enabled:
        output.text("domains do not count: placement: {settings: {failure_domains_enabled: true}} lets them")
    return 0
