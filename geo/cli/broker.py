"""`geo broker`."""

from __future__ import annotations

import argparse

from geo.cli.arguments import Verbs, add_running
from geo.cli.output import Output
from geo.cli.running import LOOKS_S, load_for, name_missing_sources, noting_health, start_spark, stop_on_signals, with_disk
from geo.cli.signals import at_signal
from geo.fleet.broker import TRIGGER, Broker
from geo.fleet.work_reports import BrokerReport, WorkKind
from geo.now import utc_now
from geo.streams.life import State
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.text import counted

_BROUGHT = {
    WorkKind.PUBLISHER: ("message", "published"),
    WorkKind.LINK: ("message", "replicated"),
    WorkKind.FOLD: ("cursor", "written"),
    WorkKind.VERSIONS: ("marker", "written"),
}


def add_broker(verbs: Verbs, does: str) -> None:
    p = verbs.add("broker", does, broker)
    p.add_argument("--cluster", required=True, help="the cluster whose publishers, inbound links, folds and version sync run")
    does = "of a broker that shares the cluster with others, unique among them (default: the host's name)"
    p.add_argument("--name", help=does)
    add_running(p, TRIGGER, "or available-now: one pass over what there is")


def broker(args: argparse.Namespace, output: Output) -> int:
    parse_trigger(args.trigger)
    config = load_for(args)

    ends = args.trigger == AVAILABLE_NOW

    def event(report: BrokerReport) -> None:
        line = with_disk(_line(report), config.clusters.values())
        if ends:  # for programs it says all at its end, as one document
            output.text(line)
        else:
            output.line({"time": utc_now(), **_fields(report, output)})
        if output.as_json or not ends:  # what people read on stdout is not said twice
            args.run.changed(line, report.kind.value, report.state, report.reason, report.fields)

    if not ends:
        name_missing_sources(config, args.cluster)
    with noting_health(args, config) as health:
        runner = Broker(
            start_spark("geo broker", config),
            args.config,
            args.cluster,
            trigger=args.trigger,
            take_over=args.take_over,
            name=args.name,
            on_event=event,
            say=args.run.say,
            health=health,
        )
        args.run.follow(runner.counts, runner.status if ends else None, speaks=ends)
        stop_on_signals(args, runner.stop)
        at_signal("SIGHUP", runner.reload)
        health.wait(LOOKS_S)
        args.tells_itself = True
        reports = runner.run()
    if ends:
        output.data([_fields(report, output) for report in reports])
    return 1 if any(report.state in (State.FAILED, State.DELAYED) for report in reports) else 0


def _fields(report: BrokerReport, output: Output) -> dict[str, object]:
    return {
        "kind": report.kind.value,
        "state": report.state.value,
        "reason": report.reason and output.typed(report.reason),
        **report.fields,
    }


def _line(report: BrokerReport) -> str:
    head = f"{report.kind.value} {report.name}: {report.state.value}"
    if report.reason:
        return f"{head}: {report.reason}"
    noun, verb = _BROUGHT[report.kind]
    return f"{head}, {counted(report.count, noun)} {verb}" if report.state is State.STOPPED else head
