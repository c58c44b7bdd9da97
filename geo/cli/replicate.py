"""`geo replicate`."""

from __future__ import annotations

import argparse

from geo.cli.arguments import Verbs, add_glob, add_running
from geo.cli.output import Output
from geo.cli.running import LOOKS_S, noting_health, starting, stop_on_signals, with_disk
from geo.config import load
from geo.fleet.replicator import Replicator
from geo.names import check_topic_glob
from geo.replication.link_topics import LinkReport
from geo.streams.life import State
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.text import counted


def add_replicate(verbs: Verbs, does: str) -> None:
    p = verbs.add("replicate", does, replicate)
    p.add_argument("--cluster", required=True, metavar="TARGET", help="the cluster to replicate into")
    p.add_argument("--source", help="only the link from this cluster")
    add_glob(p)
    add_running(p)


def replicate(args: argparse.Namespace, output: Output) -> int:
    parse_trigger(args.trigger)
    config, ends = load(args.config), args.trigger == AVAILABLE_NOW

    def event(report: LinkReport) -> None:
        line = with_disk(_report_line(report), config.clusters.values())
        if ends:
            output.text(line)
        if output.as_json or not ends:  # what people read on stdout is not said twice
            args.run.changed(line, "link topic", report.state, report.reason, report.fields)

    with noting_health(args, config) as health:
        runner = Replicator(
            starting("geo replicate", config),
            config,
            args.cluster,
            source=args.source,
            topics=check_topic_glob(args.topic),
            trigger=args.trigger,
            take_over=args.take_over,
            on_event=event,
        )
        args.run.follow(runner.counts, runner.status)
        stop_on_signals(args, runner.stop)
        health.wait(LOOKS_S)
        reports = runner.run()
    output.data([{**r.fields, "state": r.state.value, "reason": r.reason and output.typed(r.reason)} for r in reports])
    if not reports:
        output.text(f"nothing to replicate into {args.cluster}: its sources have no matching topic yet")
    return 1 if any(r.state in (State.FAILED, State.DELAYED) for r in reports) else 0


def _report_line(report: LinkReport) -> str:
    ends = f", {counted(report.replicated, 'message')} replicated, at version {report.source_version} of the source"
    head = f"{report.link} {report.topic}: {report.state.value}"
    if report.expired:
        ends += f", {report.expired:,} left out because they had expired"
    if report.impossible:
        ends += f", {counted(report.impossible, 'row')} left out that no producer can have written"
    if report.reason:
        return f"{head}: {report.reason}"
    return head + (ends if report.state.value == "STOPPED" else f" from version {report.source_version}")
