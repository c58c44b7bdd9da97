"""`geo publish`."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

from geo.cli.arguments import TOPIC_FORM, Verbs, add_running, duration, from_0, from_1_to
from geo.cli.output import Output
from geo.cli.running import before_change, load_for, start_spark, stop_on_signals
from geo.config.choices import SchemaChange
from geo.config.publication import Publication
from geo.errors import NotReplicatedError, UsageError
from geo.journal.cluster import connect
from geo.journal.events import events_of
from geo.log.other_producer import refuse_same
from geo.log.partitioned import refuse_partitioned
from geo.log.publish import PublishOptions, publish_source, waited
from geo.log.publish_stream import SourceStream
from geo.log.publish_work import Publishing
from geo.log.replicas import WAIT_S, Replicas, WaitFor
from geo.log.sources import jsonl, kafka, table
from geo.log.sources.files import open_path, whole_path
from geo.log.sources.table_place import table_without_catalog
from geo.names import DEFAULT_PRODUCER, Topic
from geo.streams.life_events import LifeEvents
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.text import counted

FORMAT = (
    'a JSON line is one object, all of it optional: {"key": "text", "payload": "text" (or "payload_base64"), "properties": {"name": "text"}, '
    '"event_time": "2013-01-01T05:15:00Z", "replicate_to": ["cluster"]}, and in a typed topic its columns by their names; limits and types: '
    "docs/formats.md"
)


def add_publish(verbs: Verbs, does: str) -> None:
    p = verbs.add("publish", does, publish)
    p.epilog = f"{FORMAT}; {p.epilog}"
    p.add_argument("--cluster", required=True, help="the cluster in which the messages are written")
    p.add_argument("--topic", required=True, help=TOPIC_FORM)
    source = p.add_mutually_exclusive_group(required=True)
    does = "a file of JSON lines, or a directory with all its .jsonl, .json and .ndjson, also with .gz or .zst behind it; its form is said below"
    source.add_argument("--jsonl", metavar="PATH", help=does)
    source.add_argument("--kafka", metavar="BOOTSTRAP", help="host:port,… of a Kafka cluster; see `kafka` in the configuration")
    p.add_argument("--kafka-topic", metavar="K", help="the Kafka topic to read, one ledger per partition")
    does = "where nothing was read yet (default: %(default)s)"
    p.add_argument("--kafka-start", choices=("earliest", "latest"), default="earliest", help=does)
    source.add_argument(
        "--delta", metavar="PATH|TABLE", help="a Delta table of yours: a path, with a slash in it, or a catalog's name"
    )
    does = "with the rows that are there at first, or with what comes from then on (default: %(default)s)"
    p.add_argument("--delta-start", choices=("earliest", "latest"), default="earliest", help=does)
    p.add_argument("--key", metavar="COLUMN", help="the column of the Delta table whose text is the key of a message")
    does = "columns of the Delta table in whose order the rows of one commit are put"
    p.add_argument("--order-by", type=_names, default=(), metavar="COLUMN,…", help=does)
    does = "pass over changes and deletes in the Delta table, which stop it otherwise"
    p.add_argument("--only-inserts", action="store_true", help=does)
    does = (
        "whether the topic gets columns, and wider types, that the Delta table gets; `fixed`: they stop it (default: %(default)s)"
    )
    p.add_argument("--schema", choices=get_args(SchemaChange), default="grow", help=does)
    does = "continue behind Kafka offsets, or commits of a Delta table, that are gone"
    p.add_argument("--accept-lost", action="store_true", help=does)
    does = "continue behind Kafka offsets that are there and cannot be read, and list them as rejected; may be given again"
    p.add_argument("--accept-unreadable", type=_span, action="append", default=[], metavar="PARTITION:OFFSET[-OFFSET]", help=does)
    p.add_argument("--producer", default=DEFAULT_PRODUCER, help="name under which progress is kept (default: %(default)s)")
    does = "go on where the producer of this name stood in another cluster, whose place this one takes"
    p.add_argument("--continue-from", metavar="CLUSTER", help=does)
    p.add_argument("--rejects", metavar="DIR", help="where lines or records that cannot be published are listed")
    does = "end with exit code 1 if more than so many are rejected (default: %(default)s); the others are published"
    p.add_argument("--max-rejects", type=from_0, default=0, metavar="N", help=does)
    does = f"most bytes of files in one commit (default: {jsonl.BATCH_BYTES // 2**20} MiB; of a Delta table {table.BATCH_BYTES // 2**20} MiB, and never more)"
    p.add_argument(
        "--batch-bytes", type=from_1_to(2**31, "a number of bytes, from 1 to 2 GiB"), default=jsonl.BATCH_BYTES, help=does
    )
    does = "most Kafka records in one commit (default: %(default)s)"
    p.add_argument(
        "--batch-rows", type=from_1_to(10_000_000, "a number of records, from 1 to 10000000"), default=kafka.BATCH_ROWS, help=does
    )
    does = "end only once these regions hold what was published: by name, any N of them, or those in sync when it began"
    p.add_argument("--wait-for", type=_wait_for, metavar="REGION,…|N|in-sync", help=does)
    does = f"for at most so long (default: {WAIT_S:.0f} seconds)"
    p.add_argument("--wait-limit", type=duration, default=WAIT_S, metavar="DURATION", help=does)
    add_running(p)


def _names(text: str) -> tuple[str, ...]:
    """The type of `--order-by`."""
    return tuple(name.strip() for name in text.split(","))


def _span(text: str) -> kafka.OffsetSpan:
    """The type of `--accept-unreadable`."""
    try:
        return kafka.parse_span(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _wait_for(text: str) -> WaitFor:
    """The type of `--wait-for`."""
    return int(text) if text.isdigit() else "in-sync" if text == "in-sync" else tuple(text.split(","))


def publish(args: argparse.Namespace, output: Output) -> int:
    parse_trigger(args.trigger)
    config, topic = load_for(args), Topic.parse(args.topic)
    if args.continue_from is not None:
        refuse_same(config, args.cluster, args.continue_from)
    if (args.kafka is None) != (args.kafka_topic is None):
        raise UsageError("--kafka BOOTSTRAP and --kafka-topic K belong together.")
    if args.wait_for is not None and args.trigger != AVAILABLE_NOW:
        raise UsageError("--wait-for is for a run that ends: leave --trigger out.")
    what = Publication(
        args.cluster, topic, args.producer, args.jsonl, args.kafka, args.kafka_topic, args.kafka_start, args.delta, args.delta_start,
        args.key, args.order_by, args.only_inserts, args.schema,
    )  # fmt: skip
    options = PublishOptions(
        trigger=args.trigger, batch_bytes=args.batch_bytes, batch_rows=args.batch_rows, accept_lost=args.accept_lost,
        accept_unreadable=tuple(args.accept_unreadable),
        rejects=args.rejects, continue_from=args.continue_from,
    )  # fmt: skip
    options.check_for(what)
    if args.jsonl is not None:
        open_path(whole_path(args.jsonl))
    if args.delta is not None:
        table_without_catalog(args.delta, config.cluster(args.cluster))
    refuse_partitioned(before_change("geo publish", config, args.cluster).clusters[args.cluster], topic)
    spark = start_spark("geo publish", config, args.jsonl, args.delta, args.rejects)

    def begin(take_over: bool, is_stopped: Callable[[], bool]) -> SourceStream:
        now = replace(options, take_over=take_over, again=not runner.work.has_begun, stopped=is_stopped)
        return publish_source(spark, config, what, options=now)

    tables = connect(spark, config.cluster(args.cluster))
    lives = LifeEvents(events_of(tables))
    runner = Publishing(begin, what, once=args.trigger == AVAILABLE_NOW, take_over=args.take_over, lives=lives)
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        runner.stop()

    stop_on_signals(args, stop)
    args.run.follow(lambda: {"published": runner.work.published.rows, "rejected": runner.work.published.rejected}, runner.status)
    waits_for = partial(Replicas.of, args.wait_for, tables, config, topic, args.producer)
    if args.wait_for not in (None, "in-sync"):
        waits_for({})  # what is wrong with it is said before anything is published
    done, not_in_time = runner.run(), None
    rejects_file = runner.work.rejects_file
    if args.wait_for is not None:
        try:
            done = waited(done, waits_for(runner.work.began_at), runner.work.ends, args.wait_limit, stopped)
        except NotReplicatedError as error:
            not_in_time = error
    output.data(
        {"topic": str(topic), "cluster": args.cluster, "producer": args.producer, "published": done.rows, "rejected": done.rejected,
         "commits": done.commits, "rejects_file": rejects_file, "first_reject": runner.work.first_reject, "held_after_s": done.held_after,
         "continued": [{"source": one.source, "place": one.place, "by": one.by.value, "may_repeat": one.may_repeat}
                       for one in runner.work.continued]}
    )  # fmt: skip
    output.text(
        f"{topic} in {args.cluster}: {counted(done.rows, 'message')} published in {counted(done.commits, 'commit')} "
        f"by producer {args.producer}"
    )
    for region, seconds in done.held_after.items():
        output.text(f"{region} holds it, after {seconds:.1f} s")
    if done.rejected:
        output.text(f"{done.rejected:,} rejected, each with its place and reason in {rejects_file}")
        output.text(f"the first: {runner.work.first_reject}")
    if not_in_time is not None:
        raise not_in_time
    return 1 if done.rejected > args.max_rejects else 0
