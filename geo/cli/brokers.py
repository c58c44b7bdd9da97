"""`geo brokers`: those that share a cluster."""

from __future__ import annotations

import argparse
from typing import Any

from geo.cli.arguments import Verbs, add_engine
from geo.cli.output import Output
from geo.cli.running import LookedAt
from geo.config import load
from geo.config.model import Config
from geo.config.placement import MIB, Placement
from geo.errors import UsageError
from geo.fleet.assignments import Owners, read_assignments, read_owners
from geo.fleet.load_reports import LEFT, LoadReport, encode, names_of, read_reports
from geo.now import now_us
from geo.tables.cluster import ClusterTables
from geo.tables.process import Process


def add_brokers(verbs: Verbs, does: str) -> None:
    nouns = verbs.add_noun("brokers", does)
    p = nouns.add(
        "list", "list the brokers of a cluster: whether they live, who leads, what they have and how busy they are", list_brokers
    )
    _add_cluster(p)
    p = nouns.add(
        "report", "show what brokers report of their bundles; as JSON it is what `geo balance simulate --reports` reads", report
    )
    _add_cluster(p)
    p.add_argument("--broker", metavar="NAME", help="of this one only")


def _add_cluster(p: argparse.ArgumentParser) -> None:
    p.add_argument("--cluster", required=True, help="the cluster whose brokers it is about")
    add_engine(p)


def looked_at(args: argparse.Namespace) -> tuple[ClusterTables, Placement]:
    """The tables of the cluster, and how its brokers share it. Raises UsageError if they do not."""
    config = load(args.config)
    config.cluster(args.cluster)
    return LookedAt("geo brokers", config, args.engine).clusters[args.cluster], placement_of(config)


def placement_of(config: Config) -> Placement:
    if config.placement is None:
        raise UsageError(
            f"{config.path}: brokers share nothing, a cluster has one. To let several share its topics add: placement: {{}}"
        )
    return config.placement


def state_of(report: LoadReport, timeout_s: float) -> str:
    """`up`, `leaving` or `left`, or that it is silent, by this host's clock."""
    silent_s = (now_us() - report.sequence) / 1e6
    return report.state if report.state == LEFT or silent_s <= timeout_s else f"silent for {silent_s:,.0f} s"


def leader_of(owners: Owners, names: dict[str, str]) -> str | None:
    """The broker that leads, or led last and has not given that up."""
    lead = owners.lead
    return None if lead is None or lead.released or lead.process is None or not owners.shares else names.get(lead.process.name)


def list_brokers(args: argparse.Namespace, output: Output) -> int:
    tables, placement = looked_at(args)
    reports, owners = read_reports(tables), read_owners(tables)
    names = names_of(reports)
    leader, claims = leader_of(owners, names), owners.claims(names)
    rows: list[dict[str, Any]] = []
    for name, one in sorted(reports.items()):
        load, holder = one.load, Process.decode(one.holder)
        rows.append({
            "broker": name, "state": state_of(one, placement.broker_timeout_s), "leads": name == leader,
            "host": holder and holder.host, "pid": holder and holder.pid,
            "bundles": sum(claim.broker == name and not claim.released for claim in claims.values()), "topics": load.topics,
            "messages_per_second": round(load.msg_rate, 1), "bytes_per_second": round(load.throughput), "cpu": round(load.cpu.fraction, 3),
            "memory": round(load.direct_memory.fraction, 3), "bandwidth": round(load.bandwidth_in.fraction, 3), "loaded_at": one.loaded_at,
        })  # fmt: skip
    output.data(rows)
    output.table(
        ("BROKER", "STATE", "LEADS", "PROCESS", "BUNDLES", "TOPICS", "MESSAGES/S", "MIB/S", "CPU"),
        [
            (r["broker"], r["state"], "yes" if r["leads"] else "", f"{r['pid']} on {r['host']}", r["bundles"], r["topics"],
             f"{r['messages_per_second']:,.1f}", f"{r['bytes_per_second'] / MIB:,.2f}", f"{r['cpu']:.0%}")
            for r in rows
        ],
    )  # fmt: skip
    if not rows:
        output.text(f"no broker has shared {args.cluster} yet: geo broker --config {args.config} --cluster {args.cluster}")
    unassigned = sum(one.broker == "" for one in read_assignments(tables).values())
    return 1 if leader is None and rows and unassigned else 0


def report(args: argparse.Namespace, output: Output) -> int:
    tables, placement = looked_at(args)
    reports = {name: one for name, one in read_reports(tables).items() if args.broker in (None, name)}
    if args.broker is not None and not reports:
        raise UsageError(f"there is no broker {args.broker}; there are: {', '.join(sorted(read_reports(tables))) or 'none'}")
    living = {
        name: one for name, one in sorted(reports.items()) if state_of(one, placement.broker_timeout_s) in ("up", "leaving")
    }
    output.data({name: encode(one.load) for name, one in living.items()})
    output.table(
        ("BROKER", "BUNDLE", "TOPICS", "MESSAGES/S", "MIB/S"),
        [
            (name, bundle, load.topics, f"{load.msg_rate:,.1f}", f"{load.throughput / MIB:,.3f}")
            for name, one in living.items()
            for bundle, load in sorted(one.load.bundles.items())
        ],
    )
    return 0
