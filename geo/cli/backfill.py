"""`geo backfill`."""

from __future__ import annotations

import argparse
import sys
import threading
from dataclasses import asdict

from geo.cli.arguments import A_TIME, Verbs, add_dry_run, from_1_to, moment
from geo.cli.output import Output
from geo.cli.running import before_change, start_spark, stop_on_signals
from geo.config import load
from geo.disk import local_path
from geo.errors import UsageError
from geo.fleet.backfill import Backfill, Filled, Mode, backfill
from geo.fleet.offset_checkpoint import OffsetCheckpoint
from geo.names import check_topic_glob
from geo.replication.repair import carried_topics
from geo.text import counted

_MOST_BYTES = 10**15


def add_backfill(verbs: Verbs, does: str) -> None:
    p = verbs.add("backfill", does, run_backfill)
    p.add_argument("--source", required=True, help="the cluster that the link reads")
    p.add_argument("--target", required=True, help="the cluster that it writes")
    p.add_argument("--topic", required=True, metavar="GLOB")
    p.add_argument(
        "--from",
        dest="since",
        type=moment,
        metavar="TIME",
        help=f"only what was published at that time or later, such as {A_TIME}",
    )
    p.add_argument("--to", dest="until", type=moment, metavar="TIME", help="only what was published before that time")
    does = "rows: read and appended; files: where all rows of a file are wanted it is copied as it is (default: %(default)s)"
    p.add_argument("--mode", choices=[mode.value for mode in Mode], default=Mode.ROWS.value, help=does)
    does = "of the source's files; default: any number"
    p.add_argument("--max-bytes-per-second", type=from_1_to(_MOST_BYTES, "a number of bytes, 1 or more"), metavar="N", help=does)
    does = "a file of offsets in Kafka's format: of each topic that is complete, the version of the source to go on from"
    p.add_argument("--checkpoint", metavar="FILE", help=does)
    add_dry_run(p)


def run_backfill(args: argparse.Namespace, output: Output) -> int:
    config = load(args.config)
    link, there = config.link(args.source, args.target), before_change("geo backfill", config, args.target).clusters
    what = Backfill(args.since, args.until, Mode(args.mode), args.max_bytes_per_second)
    checkpoint = None if args.checkpoint is None else _checkpoint(args.checkpoint)
    carried_topics(config, link, there[args.source], there[args.target], check_topic_glob(args.topic))
    # A line a step is for whoever keeps the output of a scheduled job; a terminal has lines of the log, with the time that is left.
    steps = Output(as_json=output.as_json or not sys.stderr.isatty())
    stopped = threading.Event()
    stop_on_signals(args, stopped.set)
    done, not_done = backfill(
        start_spark("geo backfill", config), config, args.source, args.target, topics=check_topic_glob(args.topic), what=what,
        checkpoint=checkpoint, dry_run=args.dry_run, stopped=stopped, on_step=lambda filled: steps.line({"event": "step", **asdict(filled)}),
    )  # fmt: skip
    for filled in done:
        output.line({"event": "topic", **asdict(filled), "dry_run": args.dry_run})
        output.text(_line(filled, dry_run=args.dry_run))
    for topic, why in not_done.items():
        output.line({"event": "topic", "link": f"{args.source}->{args.target}", "topic": topic, "not_done": why})
        output.text(f"{args.source}->{args.target} {topic}: not done: {why}")
    return 1 if not_done or stopped.is_set() else 0


def _checkpoint(location: str) -> OffsetCheckpoint:
    if (path := local_path(location)) is None:
        raise UsageError(f"--checkpoint {location}: it is a file on a disk of this machine, or on what is mounted there; no URI.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--checkpoint {location}: its folder is not there. Make it first.")
    if path.is_dir():
        raise UsageError(f"--checkpoint {location}: is a folder. Name a file.")
    return OffsetCheckpoint(path)


def _line(filled: Filled, *, dry_run: bool) -> str:
    head = f"{filled.link} {filled.topic}:"
    compared = f"compared with version {filled.source_version} of the source"
    files = f", {filled.by_file:,} of them in whole files" if filled.by_file else ""
    if dry_run:
        return f"{head} {counted(filled.messages, 'message')} missing{files}, nothing written, {compared}"
    ends = "" if filled.complete else "; stopped before its end, run it again"
    return f"{head} {counted(filled.messages, 'missing message')} appended{files}, in {counted(filled.steps, 'step')}, {compared}{ends}"
