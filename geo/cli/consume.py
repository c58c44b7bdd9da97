"""`geo consume`."""

from __future__ import annotations

import argparse
import base64
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pyspark.sql import DataFrame

from geo.cli.arguments import TOPIC_FORM, Verbs, add_take_over, add_trigger, from_1_to, key_range, seconds
from geo.cli.output import Line, Output, UnprintedError, as_text
from geo.cli.running import load_for, stop_on_signals, writable
from geo.cli.subscription_arguments import add_replicated, add_start
from geo.delta.arrow_rows import collected
from geo.errors import UsageError
from geo.log.partitioned import partitions
from geo.names import Topic, check_subscription, check_topic_glob, is_glob
from geo.ops.named import refuse_absent
from geo.streams.trigger import parse_trigger
from geo.subscription.consumer import Subscription, Subscriptions
from geo.subscription.consumer.run import TRIGGER
from geo.subscription.consumer.settings import MOST_REDELIVERIES
from geo.subscription.consumer.subscription import REDELIVERY_DELAY_S
from geo.subscription.consumer.user_function import Listener

log = logging.getLogger(__name__)

BATCH_ROWS = 1_000
"""Messages that are printed, and held, at once."""


def add_consume(verbs: Verbs, does: str) -> None:
    p = verbs.add("consume", does, consume)
    p.add_argument("--cluster", required=True, help="the cluster whose log is read")
    does = f"{TOPIC_FORM}, a partitioned one too; with * or ? all topics that match, dead letter topics only by a name with -DLQ"
    p.add_argument("--topic", required=True, help=does)
    p.add_argument("--subscription", required=True, metavar="S", help="the named consumer group")
    p.add_argument("--limit", type=from_1_to(10**12, "a number of messages"), metavar="N", help="stop after so many messages")
    p.add_argument("--for", type=seconds, dest="for_s", metavar="SECONDS", help="stop after so long")
    p.add_argument("--ack", default="all", metavar="all|none|REGEX", help="acknowledge all (default), none, or by the key")
    add_start(p, "where a subscription begins of which there is no record yet")
    add_replicated(p, " of which there is no record yet (default: as the policy of the topic says, else true)")
    does = f"of what is not acknowledged (default: {REDELIVERY_DELAY_S:.0f})"
    p.add_argument("--redelivery-delay", type=seconds, default=REDELIVERY_DELAY_S, metavar="SECONDS", help=does)
    does = "then a message goes to TOPIC-S-DLQ (default: it comes back until it is acknowledged, and an error ends the run)"
    p.add_argument(
        "--max-redeliveries", type=from_1_to(MOST_REDELIVERIES, f"a number from 1 to {MOST_REDELIVERIES}"), metavar="N", help=does
    )
    does = "only messages first written there; may be given again"
    p.add_argument("--origin", action="append", dest="origins", metavar="CLUSTER", help=does)
    does = "be one of N consumers here that share the keys, 0/N to N-1/N: each key comes to one of them, in order"
    p.add_argument("--key-range", type=key_range, metavar="I/N", help=does)
    waits = p.add_mutually_exclusive_group()
    does = "while another process consumes S in this cluster wait until it has ended, then go on"
    waits.add_argument("--standby", action="store_true", help=does)
    does = "begin though records of the subscription cannot be read, as those of a newer delta-geo: what they acknowledge comes again"
    p.add_argument("--ignore-unreadable", action="store_true", help=does)
    add_trigger(p, default=TRIGGER, also="also available-now: what is there")
    add_take_over(waits)


def consume(args: argparse.Namespace, output: Output) -> int:
    parse_trigger(args.trigger)
    config = load_for(args)
    check_subscription(args.subscription)
    acknowledged = _which(args.ack)
    many = is_glob(args.topic)
    check_topic_glob(args.topic) if many else Topic.parse(args.topic)
    _refuse_of_one_topic(args, many=many)
    tables = writable(args, config, "geo consume")
    many = many or bool(partitions(tables, Topic.parse(args.topic)))
    _refuse_of_one_topic(args, many=many)
    if not many:
        refuse_absent(tables, Topic.parse(args.topic))
    spark = tables.spark
    options: dict[str, Any] = {
        "start": args.start,
        "redelivery_delay_s": args.redelivery_delay,
        "max_redeliveries": args.max_redeliveries,
        "batch_rows": BATCH_ROWS,
        "origins": args.origins,
        "take_over": args.take_over,
        "ignore_unreadable": args.ignore_unreadable,
        "key_range": args.key_range,
        "replicate_subscription_state": args.replicate_subscription_state,
    }

    unprinted: list[UnprintedError] = []

    def listener(messages: DataFrame) -> DataFrame | None:
        try:
            for fields in collected(messages):
                _print(fields, output)
        except UnprintedError as error:
            unprinted.append(error)
            consumer.stop()
            raise
        return acknowledged(messages)

    unfinished: Mapping[str, str] = {}
    if many:
        consumer: Subscription | Subscriptions
        subscriptions = consumer = Subscriptions(spark, args.topic, args.subscription, config, args.cluster, **options)
        stop_on_signals(args, subscriptions.stop)
        args.run.follow(lambda: asdict(subscriptions.done))
        done = subscriptions.run(listener, trigger=args.trigger, for_s=args.for_s)
        unfinished = subscriptions.unfinished
    else:
        subscription = consumer = Subscription(
            spark, args.topic, args.subscription, config, args.cluster, standby=args.standby, **options
        )
        stop_on_signals(args, subscription.stop)
        args.run.follow(lambda: asdict(subscription.done), lambda: "delivers" if subscription.has_begun else "waits for its turn")
        done = subscription.run(listener, trigger=args.trigger, limit=args.limit, for_s=args.for_s)
    if unprinted:
        raise unprinted[0]
    counts = ", ".join(
        f"{count:,} {what.replace('_', ' ')}" for what, count in asdict(done).items() if count or what == "delivered"
    )
    log.info("subscription %s of %s in %s: %s", args.subscription, args.topic, args.cluster, counts)
    for topic, why in unfinished.items():
        output.line({"topic": topic, "unfinished": why})
        output.text(f"{topic}: not consumed to its end: {why}")
    return 1 if unfinished else 0


def _refuse_of_one_topic(args: argparse.Namespace, *, many: bool) -> None:
    if many and (args.limit is not None or args.standby):
        raise UsageError(
            f"--limit and --standby work for one topic, and {args.topic} stands for several. Leave them out: a topic that another process "
            "consumes is taken up once that one has ended."
        )


def _which(ack: str) -> Listener:
    """Makes the listener that acknowledges, of some messages, those of `--ack`."""
    if ack in ("all", "none"):
        return lambda messages: messages if ack == "all" else None
    try:
        re.compile(ack)
    except re.error as error:
        raise UsageError(f"--ack {ack!r} is neither all nor none nor a regular expression: {error}") from None
    return lambda messages: messages.where(messages["key"].rlike(ack))


def _print(fields: dict[str, Any], output: Output) -> None:
    payload = fields.pop("payload")
    for name in ("event_time", "producer", "replicate_to"):  # what is missing is not shown
        if fields[name] is None:
            del fields[name]
    if payload is not None:
        try:
            fields["payload"] = payload.decode("utf-8")
        except UnicodeDecodeError:
            fields["payload_base64"] = base64.b64encode(payload).decode()
    else:
        fields["payload"] = None
    output.line(fields)
    message_id = f"{fields.pop('origin')}:{fields.pop('ledger_id')}:{fields.pop('entry_id')}"
    said = {name: value for name, value in fields.items() if value not in (None, {}) and (name, value) != ("redelivery_count", 0)}
    shown = (f"{name}={as_text(value)}" for name, value in said.items())
    output.lines([Line("  ".join([message_id, *shown]))])
