"""`geo brokers`: those that share a cluster."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from geo.cli.arguments import Verbs, add_engine
from geo.cli.findings import process_as_json
from geo.cli.output import Output
from geo.cli.running import LookedAt, load_for
from geo.config.model import Config
from geo.config.placement import MIB, Placement
from geo.config.yaml_nodes import suggestion
from geo.coordination.holders import RegionHolders
from geo.coordination.liveness import silent_s
from geo.coordination.runners import broker_runner
from geo.coordination.storage_clock import storage_now_us
from geo.delta.process import Process
from geo.errors import UsageError
from geo.fleet.assignments import read_owners
from geo.fleet.load_reports import LEAVING, LEFT, UP, LoadReport, names_of, read_reports
from geo.fleet.placement.load_data import encode
from geo.fleet.placement.views import SILENT, once_each, owner_of, told_state
from geo.journal.cluster import ClusterTables
from geo.ops.region_process import RegionProcess
from geo.ops.region_processes import region_processes
from geo.replication.absent_regions import refuse_gone
from geo.text import counted, lasting, show
from geo.times import from_us, shown_time


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
    p.add_argument("--broker", metavar="NAME", help="of this one only, also if it lives no longer")
    p.add_argument("--out", metavar="FILE", help="write that JSON into a file, whatever is printed")


def _add_cluster(p: argparse.ArgumentParser) -> None:
    p.add_argument("--cluster", required=True, help="the cluster whose brokers it is about")
    add_engine(p)


def looked_at(args: argparse.Namespace) -> tuple[Mapping[str, ClusterTables], Placement]:
    """The tables of each cluster, and how the brokers of the one that was named share it. Raises UsageError if they do not."""
    config = load_for(args)
    return LookedAt("geo brokers", config, args.engine).clusters, placement_of(config)


def placement_of(config: Config) -> Placement:
    if config.placement is None:
        raise UsageError(
            f"{config.path}: brokers share nothing, a cluster has one. To let several share its topics add: placement: {{}}"
        )
    return config.placement


def state_of(tables: ClusterTables, report: LoadReport, timeout_s: float) -> str:
    """`up`, `leaving`, `left` or SILENT, by the storage's clock."""
    return told_state(report.state, _silent_s(tables, report), timeout_s, has_left=report.state == LEFT)


def usages_of(tables: ClusterTables, reports: Mapping[str, LoadReport], placement: Placement) -> dict[str, float]:
    """Derives how busy each broker is that is up, as a fraction."""
    up = {name: one for name, one in reports.items() if state_of(tables, one, placement.broker_timeout_s) == UP}
    return {name: one.load.max_usage(placement.settings) for name, one in up.items()}


def _silent_s(tables: ClusterTables, report: LoadReport) -> float:
    """Seconds since its last sign of life, by the storage's clock."""
    return silent_s(storage_now_us(tables, writes=False), [report.sequence])


def refuse_unknown_broker(cluster: str, name: str, known: Collection[str]) -> None:
    """Raises UsageError if the cluster has no broker of this name."""
    if name not in known:
        there = ", ".join(sorted(known)) or "none"
        raise UsageError(f"{cluster} has no broker {show(name)}; there are: {there}{suggestion(name, known)}")


def list_brokers(args: argparse.Namespace, output: Output) -> int:
    if (config := load_for(args)).placement is None:
        return _list_alone(args, output, LookedAt("geo brokers", config, args.engine).clusters)
    clusters, placement = looked_at(args)
    tables = clusters[args.cluster]
    reports, owners = read_reports(tables), read_owners(tables)
    names = names_of(reports)
    leader, claims = owners.leader(names), owners.claims(names)
    rows: list[dict[str, Any]] = []
    for name, one in sorted(reports.items()):
        load, holder = one.load, Process.decode(one.holder)
        rows.append({
            "broker": name, "state": state_of(tables, one, placement.broker_timeout_s), "silent_seconds": round(_silent_s(tables, one), 1),
            "leads": name == leader,
            "host": holder and holder.host, "pid": holder and holder.pid, "version": one.version,
            "bundles": sum(claim.broker == name and not claim.released for claim in claims.values()), "topics": load.topics,
            "messages_per_second": round(load.msg_rate, 1), "bytes_per_second": round(load.throughput), "cpu": round(load.cpu.fraction, 3),
            "memory": round(load.direct_memory.fraction, 3), "bandwidth": round(load.bandwidth_in.fraction, 3), "loaded_at": one.loaded_at,
            "load_age_seconds": round(max(0.0, storage_now_us(tables, writes=False) / 1e6 - one.loaded_at.timestamp()), 1),
        })  # fmt: skip
    output.data(rows)
    output.table(
        ("BROKER", "STATE", "LEADS", "PROCESS", "BUNDLES", "TOPICS", "MESSAGES/S", "MIB/S", "CPU", "LOAD OF"),
        list(map(_row, rows)),
    )
    refuse_gone(tables, clusters.values())  # once what is there has been shown
    versions = {row["broker"]: row["version"] or "?" for row in rows if row["state"] in (UP, LEAVING)}
    if len(set(versions.values())) > 1:
        output.text(f"their versions differ: {', '.join(f'{name} {version}' for name, version in versions.items())}")
    if not rows:
        output.text(f"no broker has shared {args.cluster} yet: geo broker --cluster {args.cluster}")
    dead = [r["broker"] for r in rows if r["state"] in (SILENT, LEFT) and (r["bundles"] or r["leads"])]
    output.text(*(f"{name} is not up and has what others wait for; another one takes it over, if one is up" for name in dead))
    lead = owners.lead
    if lead is not None and lead.is_owned and not owners.shares:
        why = RegionHolders(tables).why_not_run(broker_runner(tables).name)
        alone = (
            f"{Process.decode(lead.holder)} runs {args.cluster} alone; no broker takes part while it lives"
            if not why
            else f"no broker runs: {why}"
        )
        output.text(alone)
        return int(bool(why))
    if rows and leader is None:
        output.text(f"no broker leads now, so nothing is placed anew: geo broker --cluster {args.cluster}")
    elif leader is not None and state_of(tables, reports[leader], placement.broker_timeout_s) == SILENT:
        output.text(f"{leader}, which leads, is silent; another broker leads soon, if one is up")
    return int(bool(dead) or (bool(rows) and leader is None))


def _list_alone(args: argparse.Namespace, output: Output, clusters: Mapping[str, ClusterTables]) -> int:
    """Lists who runs a cluster that no brokers share, or some of it."""
    tables, every = clusters[args.cluster], clusters.values()
    found = region_processes(RegionHolders(tables))
    output.data(list(map(process_as_json, found)))
    rows = [(one.name, one.does, shown_time(from_us(one.since_us)), _alive(one), one.works) for one in found]
    if found:
        output.table(("BROKER", "DOES", "SINCE", "ALIVE", "WORKS"), rows)
    refuse_gone(tables, every)
    if all(one.holder.is_dead for one in found):
        output.text(f"nobody runs {args.cluster} now: geo broker --cluster {args.cluster}")
    return int(any(one.holder.why for one in found))


def _alive(one: RegionProcess) -> str:
    return f"no: {one.holder.why}" if one.holder.why else f"{lasting(one.holder.silent_s)} ago"


def _row(r: Mapping[str, Any]) -> tuple[object, ...]:
    state = f"silent for {r['silent_seconds']:,.0f} s" if r["state"] == SILENT else r["state"]
    who = (r["broker"], state, "yes" if r["leads"] else "", f"{r['pid']} on {r['host']}" if r["host"] else "?", r["bundles"])
    if r["state"] == LEFT:
        return (*who, *("",) * 5)  # it said what it had when it left
    rates = f"{r['messages_per_second']:,.1f}", f"{r['bytes_per_second'] / MIB:,.2f}"
    return (*who, r["topics"], *rates, f"{r['cpu']:.0%}", f"{r['load_age_seconds']:,.0f} s ago")


def report(args: argparse.Namespace, output: Output) -> int:
    clusters, placement = looked_at(args)
    tables = clusters[args.cluster]
    reports = read_reports(tables)
    if args.broker is not None:
        refuse_unknown_broker(args.cluster, args.broker, reports)
    states = {name: state_of(tables, one, placement.broker_timeout_s) for name, one in sorted(reports.items())}
    living = [name for name, state in states.items() if state in (UP, LEAVING)]
    claims = read_owners(tables).claims(names_of(reports))
    loads = once_each(
        {name: reports[name].load for name in living},
        {name: reports[name].loaded_at.timestamp() for name in living},
        {bundle: owner_of(bundle, claims) for bundle in claims},
    )
    if args.broker is not None:  # also of one that is silent
        loads = {args.broker: loads.get(args.broker, reports[args.broker].load)}
    document = {name: encode(load) for name, load in loads.items()}
    if args.out is not None:
        try:
            Path(args.out).write_text(json.dumps(document, indent=2) + "\n")
        except OSError as error:
            raise UsageError(f"--out {show(args.out)} cannot be written: {error}") from None
    output.data(document)
    output.table(
        ("BROKER", "BUNDLE", "TOPICS", "MESSAGES/S", "MIB/S"),
        [
            (name, bundle, load.topics, f"{load.msg_rate:,.1f}", f"{load.throughput / MIB:,.3f}")
            for name, of in loads.items()
            for bundle, load in sorted(of.bundles.items())
        ],
    )
    for name, state in states.items():
        if name not in living and args.broker in (None, name):
            output.text(f"broker {name}: {state}{'; its report is not shown' if args.broker is None else ''}")
    if args.out is not None:
        output.text(f"written, of {counted(len(loads), 'broker')}: geo balance simulate --reports {args.out}")
    return 0
