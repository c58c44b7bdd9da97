"""`geo broker`."""

from __future__ import annotations

import argparse
import signal
from dataclasses import asdict

from geo.cli.arguments import Verbs, add_running
from geo.cli.output import Output
from geo.cli.running import start_spark, stop_on_signals
from geo.config import load
from geo.fleet.broker import TRIGGER, Broker, BrokerReport
from geo.streams.life import State
from geo.streams.trigger import parse_trigger
from geo.text import counted

_BROUGHT = {"publisher": ("message", "published"), "link": ("message", "replicated"), "fold": ("cursor", "written")}


def add_broker(verbs: Verbs, does: str) -> None:
    p = verbs.add("broker", does, broker)
    p.add_argument("--cluster", required=True, help="the cluster whose publishers, inbound links and folds run")
    add_running(p, TRIGGER, "or available-now: one pass over what there is")


def broker(args: argparse.Namespace, output: Output) -> int:
    parse_trigger(args.trigger)
    config = load(args.config)
    config.cluster(args.cluster)
    runner = Broker(
        start_spark("geo broker"),
        config,
        args.cluster,
        trigger=args.trigger,
        take_over=args.take_over,
        on_event=lambda report: output.text(_line(report)),
        say=output.text,
    )
    stop_on_signals(runner.stop)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: runner.reload())
    reports = runner.run()
    output.data([{**asdict(report), "state": report.state.value} for report in reports])
    return 1 if any(report.state in (State.FAILED, State.DELAYED) for report in reports) else 0


def _line(report: BrokerReport) -> str:
    head = f"{report.kind} {report.name}: {report.state.value}"
    if report.reason:
        return f"{head}: {report.reason}"
    noun, verb = _BROUGHT[report.kind]
    return f"{head}, {counted(report.messages, noun)} {verb}" if report.state is State.STOPPED else head
