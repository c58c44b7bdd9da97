"""What each `geo` verb does: a few lines over a function that returns data; nothing is decided here.

A verb takes the parsed arguments and an Output and returns the exit code. Spark is imported and started only once the
arguments and the configuration are known to be right.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING, Any

from geo.config import load
from geo.errors import UsageError
from geo.log.names import Topic, check_topic_glob, topic_glob_matches
from geo.output import Output, printable
from geo.trigger import parse_trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from geo.replication.replicate import LinkReport


def publish(args: argparse.Namespace, output: Output) -> int:
    from geo.log.publish import publish_json_lines, publish_kafka

    parse_trigger(args.trigger)
    config, topic = load(args.config), Topic.parse(args.topic)
    config.cluster(args.cluster)
    if (args.kafka is None) != (args.kafka_topic is None):
        raise UsageError("--kafka BOOTSTRAP and --kafka-topic K belong together.")
    common: dict[str, Any] = {
        "config": config, "cluster": args.cluster, "producer": args.producer, "trigger": args.trigger,
        "rejects": args.rejects, "take_over": args.take_over,
    }  # fmt: skip
    spark = start_spark("geo publish")
    if args.kafka is not None:
        stream = publish_kafka(
            spark, args.kafka, args.kafka_topic, topic, begin=args.kafka_start, batch_rows=args.batch_rows,
            accept_lost=args.accept_lost, **common,
        )  # fmt: skip
    else:
        stream = publish_json_lines(spark, args.jsonl, topic, batch_bytes=args.batch_bytes, **common)
    _until_stopped(stream.await_termination, stream.stop)
    done = stream.published
    output.data(
        {"topic": str(topic), "cluster": args.cluster, "producer": args.producer, "published": done.rows, "rejected": done.rejected,
         "commits": done.commits, "rejects_file": stream.rejects_file}
    )  # fmt: skip
    output.text(f"{topic} in {args.cluster}: {done.rows:,} messages published in {done.commits} commits by {args.producer}")
    if done.rejected:
        output.text(f"{done.rejected:,} rejected, each with its place and reason in {stream.rejects_file}")
    return 0


def replicate(args: argparse.Namespace, output: Output) -> int:
    from geo.replication.link_state import State
    from geo.replication.replicate import Replicator

    parse_trigger(args.trigger)
    config = load(args.config)
    runner = Replicator(
        start_spark("geo replicate"),
        config,
        args.cluster,
        source=args.source,
        topics=check_topic_glob(args.topic),
        trigger=args.trigger,
        take_over=args.take_over,
        on_event=lambda report: output.text(_told(report)),
    )
    signal.signal(signal.SIGTERM, lambda *_: runner.stop())
    signal.signal(signal.SIGINT, lambda *_: runner.stop())
    reports = runner.run()
    output.data([{"link": r.link, "topic": r.topic, "state": r.state.value, "reason": r.reason, "replicated": r.replicated,
                  "source_version": r.source_version, "expired": r.expired} for r in reports])  # fmt: skip
    if not reports:
        output.text(f"nothing to replicate into {args.cluster}: its sources have no matching topic yet")
    return 1 if any(r.state in (State.FAILED, State.DELAYED) for r in reports) else 0


def reconcile(args: argparse.Namespace, output: Output) -> int:
    return _reconcile(args, output, None)


def reset(args: argparse.Namespace, output: Output) -> int:
    return _reconcile(args, output, args.to)


def _reconcile(args: argparse.Namespace, output: Output, start: Any) -> int:
    from geo.replication.repair import reconcile_links

    config = load(args.config)
    config.link(args.source, args.target)
    done = reconcile_links(
        start_spark("geo reconcile" if start is None else "geo links reset"),
        config,
        args.source,
        args.target,
        topics=check_topic_glob(args.topic),
        start=start,
        dry_run=args.dry_run,
        take_over=args.take_over,
    )
    output.data([{"link": r.link, "topic": r.topic, "missing": r.missing, "appended": r.appended, "source_version": r.source_version,
                  "dry_run": args.dry_run} for r in done])  # fmt: skip
    begins = "" if start is None else f"begins at {start}, "
    for r in done:
        what = f"{r.missing:,} messages missing, nothing written" if args.dry_run else f"{r.appended:,} missing messages appended"
        output.text(f"{r.link} {r.topic}: {begins}{what}, compared with version {r.source_version} of the source")
    return 0


def verify(args: argparse.Namespace, output: Output) -> int:
    from geo.ops.verify import verify as run

    config = load(args.config)
    report = run(start_spark("geo verify"), config, check_topic_glob(args.topic))
    output.data(report.to_json())
    output.text(*report.lines())
    return 0 if report.clean else 1


def links(args: argparse.Namespace, output: Output) -> int:
    from geo.log.tables import ClusterTables
    from geo.replication.link_table import read_links

    config, spark = load(args.config), start_spark("geo links")
    found = []
    for name, cluster in config.clusters.items():
        for (source, topic), state in read_links(ClusterTables(spark, cluster)).items():
            if topic_glob_matches(args.topic, Topic.parse(topic)):
                found.append({"link": f"{source}->{name}", "topic": topic, "state": state.state.value, "reason": state.reason,
                              "source_version": state.cursor.version if state.cursor else None, "floors": state.floors,
                              "expired": state.expired})  # fmt: skip
    found.sort(key=lambda row: (row["topic"], row["link"]))
    output.data(found)
    output.table(
        ("TOPIC", "LINK", "STATE", "SOURCE VERSION", "REASON"),
        [(r["topic"], r["link"], r["state"], r["source_version"], r["reason"]) for r in found],
    )
    return 0


def rebuild(args: argparse.Namespace, output: Output) -> int:
    from geo.replication.rebuild import rebuild as run

    config = load(args.config)
    config.cluster(args.cluster), config.cluster(args.peer)
    done = run(start_spark("geo rebuild"), config, args.cluster, args.peer, check_topic_glob(args.topic), dry_run=args.dry_run)
    output.data([{**asdict(one), "cluster": args.cluster, "from": args.peer, "dry_run": args.dry_run} for one in done])
    verb = "would come back" if args.dry_run else "came back"
    for one in done:
        output.text(f"{one.topic}: {one.messages:,} messages of {args.cluster} {verb} from {args.peer}")
    return 0


def erase(args: argparse.Namespace, output: Output) -> int:
    from geo.replication.erase import erase as run

    config, topic = load(args.config), Topic.parse(args.topic)
    config.cluster(args.cluster)
    done = run(start_spark("geo erase"), config, args.cluster, topic, args.where, dry_run=args.dry_run)
    output.data({**asdict(done), "dry_run": args.dry_run})
    output.text(f"{topic} in {args.cluster}: {done.messages:,} messages " + ("would be emptied" if args.dry_run else "emptied"))
    if done.version is not None:
        output.text(
            f"Files with the old content stay for {done.files_gone_after.removeprefix('interval ')}, then `geo maintain` removes them. "
            "Other clusters keep theirs until it is run there."
        )
    return 0


def maintain(args: argparse.Namespace, output: Output) -> int:
    from geo.ops.maintain import maintain as run

    config = load(args.config)
    config.cluster(args.cluster)
    done = run(
        start_spark("geo maintain"), config, args.cluster, check_topic_glob(args.topic), dry_run=args.dry_run, yes=args.yes
    )
    output.data({"dry_run": args.dry_run, "tables": [asdict(one) for one in done]})
    removed, compacted = ("would be removed", "would be compacted") if args.dry_run else ("removed", "compacted")
    for one in done:
        for day in one.expired:
            output.text(f"{one.table}: {day.day} expired, {day.rows:,} rows, {day.files:,} files, {day.bytes:,} bytes {removed}")
        for held in one.held:
            days = ", ".join(map(str, held.days))
            hint = "; --yes removes them all the same" if held.silent and not args.yes else ""
            output.text(f"{one.table}: {days} expired, but {held.link} has not read all of it: {held.why}{hint}")
        for day in one.compacted:
            output.text(f"{one.table}: {day.day}, {day.files:,} files, {day.bytes:,} bytes {compacted}")
        if one.log is not None and (one.log.commits or one.log.held_by):
            why = f"; more is held by {one.log.held_by}" if one.log.held_by else ""
            output.text(f"{one.table}: {one.log.commits:,} commits {removed} from its log, {one.log.kept:,} stay{why}")
        if one.superseded_rows:
            output.text(f"{one.table}: {one.superseded_rows:,} superseded rows {removed}")
    return 0


def peek(args: argparse.Namespace, output: Output) -> int:
    from geo.log.reader import newest
    from geo.log.tables import ClusterTables

    config, topic = load(args.config), Topic.parse(args.topic)
    found = list(newest(ClusterTables(start_spark("geo peek"), config.cluster(args.cluster)), topic, args.n))
    for message in found:
        raw = message.pop("payload")
        message["payload_bytes"] = None if raw is None else len(raw)
        if args.payload and raw is not None:
            message["payload"] = raw.hex() if args.payload == "hex" else raw.decode("utf-8", "replace")
    output.data(found)
    for message in found:
        shown = {k: v for k, v in message.items() if v not in (None, {}) and k not in ("message_id", "columns")}
        shown |= {k: v for k, v in message["columns"].items() if v is not None}
        output.text(f"{message['message_id']}  " + "  ".join(f"{k}={printable(str(v))}" for k, v in shown.items()))
    return 0


def topics(args: argparse.Namespace, output: Output) -> int:
    from geo.log.tables import ClusterTables
    from geo.log.topics import registered_topics

    config, spark = load(args.config), start_spark("geo topics")
    found: list[dict[str, Any]] = []
    for name, cluster in config.clusters.items():
        tables = ClusterTables(spark, cluster)
        for registered in registered_topics(tables):
            if topic_glob_matches(args.topic, registered.topic):
                log = tables.log(registered.topic)
                there = log.exists()
                found.append({"topic": str(registered.topic), "cluster": name, "typed": registered.typed,
                              "created_at": registered.created_at, "replication_clusters": registered.replication_clusters,
                              "version": log.latest_version() if there else None,
                              "messages": log.read().where("marker IS NULL").count() if there else 0})  # fmt: skip
    found.sort(key=lambda row: (row["topic"], row["cluster"]))
    output.data(found)
    rows = [
        (r["topic"], r["cluster"], "typed" if r["typed"] else "bytes", f"{r['messages']:,}", r["version"],
         ",".join(r["replication_clusters"] or ["as configured"]))
        for r in found
    ]  # fmt: skip
    output.table(("TOPIC", "CLUSTER", "KIND", "MESSAGES", "VERSION", "REPLICATION CLUSTERS"), rows)
    return 0


def create(args: argparse.Namespace, output: Output) -> int:
    from geo.log.intake import own_columns
    from geo.log.tables import ClusterTables
    from geo.log.topics import create_partitions, create_single

    config, topic = load(args.config), Topic.parse(args.topic)
    cluster = config.cluster(args.cluster)
    tables = ClusterTables(start_spark("geo topics create"), cluster).open_for_writing(config)
    columns = own_columns(args.columns) if args.columns else []
    if args.partitions is None:
        create_single(tables, topic, columns)
        created = [topic]
    else:
        created = create_partitions(tables, topic, args.partitions, columns)
    output.data({"topic": str(topic), "cluster": args.cluster, "partitions": args.partitions, "created": list(map(str, created))})
    for one in created:
        output.text(f"{one} is in {args.cluster}")
    return 0


def set_policy(args: argparse.Namespace, output: Output) -> int:
    from geo.log.tables import ClusterTables
    from geo.log.topics import set_replication_clusters

    config, topic = load(args.config), Topic.parse(args.topic)
    cluster = config.cluster(args.cluster)
    tables = ClusterTables(start_spark("geo topics set"), cluster).open_for_writing(config)
    clusters = None if args.inherit else args.replication_clusters.split(",")
    changed = set_replication_clusters(tables, config, topic, clusters)
    output.data({"topics": list(map(str, changed)), "cluster": args.cluster, "replication_clusters": clusters})
    for one in changed:
        output.text(f"{one} in {args.cluster}: replication clusters {','.join(clusters) if clusters else 'as configured'}")
    return 0


def doctor(args: argparse.Namespace, output: Output) -> int:
    from geo.ops.doctor import examine

    config = load(args.config)
    findings = examine(start_spark("geo doctor"), config)
    output.data([{"level": f.level, "where": f.where, "what": f.what, "fix": f.fix} for f in findings])
    for f in findings:
        output.text(f"{f.level:5} {f.where}: {f.what}" + (f"\n      fix: {f.fix}" if f.fix else ""))
    return 1 if any(f.level == "error" for f in findings) else 0


def demo(args: argparse.Namespace, output: Output) -> int:
    from geo.demo import run

    return run(args.root, output)


# -- helpers -----------------------------------------------------------------------------------------------------------


def start_spark(name: str) -> SparkSession:
    """Only now: parsing and configuration errors need no JVM. What that prints by itself (VACUUM does) goes to stderr."""
    from geo.session import session

    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        return session(name)
    finally:
        os.dup2(ours, 1)
        os.close(ours)


def _until_stopped(wait: Callable[[float], bool], stop: Callable[[], None]) -> None:
    """Wait for the end of a stream; SIGTERM and SIGINT let the running batch end first."""
    asked = threading.Event()

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    while not wait(0.5):
        if asked.is_set():
            stop()
            return


def _told(report: LinkReport) -> str:
    ends = f", {report.replicated:,} messages replicated, at version {report.source_version} of the source"
    head = f"{report.link} {report.topic}: {report.state.value}"
    if report.expired:
        ends += f", {report.expired:,} left out because they had expired"
    if report.reason:
        return f"{head}: {report.reason}"
    return head + (ends if report.state.value == "STOPPED" else f" from version {report.source_version}")
