"""`geo verify`, `geo maintain`, `geo erase`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from geo.cli.agreed import add_yes, require_agreement
from geo.cli.arguments import TOPIC_FORM, Verbs, add_dry_run, add_engine, add_glob
from geo.cli.output import Output
from geo.cli.running import LookedAt, before_change, load_for, start_spark
from geo.config import load
from geo.errors import UsageError
from geo.late import late
from geo.log.topic_log import seen_log
from geo.names import ALL_TOPICS, Topic, check_topic_glob
from geo.ops.condition import refuse_unknown_names
from geo.ops.named import chosen, refuse_absent, require_matching
from geo.ops.verify.quick import verify_by_ends
from geo.text import counted

if TYPE_CHECKING:
    from geo.ops import erase as erasing
    from geo.ops import maintain as maintaining
    from geo.ops.verify import verify as verifying
else:  # who compares ends alone does without Spark
    erasing, maintaining, verifying = late("geo.ops.erase"), late("geo.ops.maintain"), late("geo.ops.verify.verify")


def add_verify(verbs: Verbs, does: str) -> None:
    p = verbs.add("verify", does, verify)
    add_glob(p)
    p.add_argument("--quick", action="store_true", help="compare only ends and counts of ledgers, in seconds")
    add_engine(p)


def add_maintain(verbs: Verbs, does: str) -> None:
    p = verbs.add("maintain", does, maintain)
    p.add_argument("--cluster", required=True, help="the cluster whose tables are maintained")
    add_glob(p)
    add_dry_run(p, "print files, rows and bytes, write nothing")
    does = "expire also what a link that has long been silent has not read"
    p.add_argument("--pass-silent-links", action="store_true", help=does)


def add_erase(verbs: Verbs, does: str) -> None:
    p = verbs.add("erase", does, erase)
    p.add_argument("--cluster", required=True, help="the cluster in whose tables they are")
    p.add_argument("--topic", required=True, help=TOPIC_FORM)
    p.add_argument("--where", required=True, metavar="SQL", help="which messages, such as \"key = 'customer 7'\"")
    add_dry_run(p)
    add_yes(p)


def verify(args: argparse.Namespace, output: Output) -> int:
    config = load(args.config)
    if args.engine == "native" and not args.quick:
        raise UsageError("content is compared by Spark alone: leave --engine native out, or add --quick.")
    looked = LookedAt("geo verify", config, args.engine)
    topics = chosen(looked.regions, args.topic)
    if args.quick:
        report = verify_by_ends(looked.clusters, config, topics)
    else:
        report = verifying.verify(start_spark("geo verify", config), config, topics)
    output.data(report.to_json())
    output.text(*report.lines())
    findings = sum(found.count for _, _, found in report.findings()) + len(report.faults)
    figures = (counted(len(report.topics), "topic"), counted(report.compared, "message"), counted(findings, "finding"))
    args.noted = ("clean" if report.clean else "faults") + _of_a_part(args, quick=args.quick), ", ".join(figures)
    return 0 if report.clean else 1


def _of_a_part(args: argparse.Namespace, *, quick: bool = False) -> str:
    """Words by which an event says that a verb looked at a part only: nobody takes it for the whole."""
    return " (ends alone)" if quick else " (some topics)" if args.topic != ALL_TOPICS else ""


def maintain(args: argparse.Namespace, output: Output) -> int:
    config = load_for(args)
    require_matching(before_change("geo maintain", config, args.cluster).clusters[args.cluster], args.topic)
    done = maintaining.maintain(
        start_spark("geo maintain", config),
        config,
        args.cluster,
        check_topic_glob(args.topic),
        dry_run=args.dry_run,
        pass_silent=args.pass_silent_links,
    )
    output.data({"dry_run": args.dry_run, "tables": [asdict(one) for one in done]})
    removed, compacted = ("would be removed", "would be compacted") if args.dry_run else ("removed", "compacted")
    for one in done:
        for day in one.expired:
            output.text(
                f"{one.table}: {day.day} expired, {counted(day.rows, 'row')}, {counted(day.files, 'file')}, {day.bytes:,} bytes "
                f"{removed}"
            )
        for held in one.held:
            days = ", ".join(map(str, held.days))
            hint = "; --pass-silent-links removes them all the same" if held.silent and not args.pass_silent_links else ""
            output.text(f"{one.table}: {days} expired, but {held.link} has not read all of it: {held.why}{hint}")
        for day in one.compacted:
            output.text(f"{one.table}: {day.day}, {counted(day.files, 'file')}, {day.bytes:,} bytes {compacted}")
        if one.log is not None and (one.log.commits or one.log.held_by):
            why = f"; more is held by {one.log.held_by}" if one.log.held_by else ""
            output.text(f"{one.table}: {counted(one.log.commits, 'commit')} {removed} from its log, {one.log.kept:,} stay{why}")
        if one.superseded_rows:
            output.text(f"{one.table}: {counted(one.superseded_rows, 'superseded row')} {removed}")
    expired = [day for one in done for day in one.expired]
    dates = f"{counted(len(expired), 'date')} expired with {counted(sum(day.rows for day in expired), 'row')}"
    args.noted = "done" + _of_a_part(args), f"{counted(len(done), 'table')}, {dates}"
    return 0


def erase(args: argparse.Namespace, output: Output) -> int:
    config, topic = load_for(args), Topic.parse(args.topic)
    tables = before_change("geo erase", config, args.cluster).clusters[args.cluster]
    refuse_absent(tables, topic)
    refuse_unknown_names(args.where, seen_log(tables, topic)[1].names, topic)
    what = f"this empties the messages of {topic} in {args.cluster} for which {args.where} holds, for good; --dry-run counts them"
    require_agreement(args, output, what)
    done = erasing.erase(start_spark("geo erase", config), config, args.cluster, topic, args.where, dry_run=args.dry_run)
    output.data({**asdict(done), "dry_run": args.dry_run})
    output.text(
        f"{topic} in {args.cluster}: {counted(done.messages, 'message')} " + ("would be emptied" if args.dry_run else "emptied")
    )
    if done.version is not None:
        output.text(
            f"Files with the old content stay for {done.files_gone_after.removeprefix('interval ')}, then `geo maintain` removes them. "
            "Other clusters keep theirs until it is run there."
        )
    return 0
