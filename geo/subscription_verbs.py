"""What the `geo` verbs about subscriptions do: `consume`, `subscriptions …`, `failover`. As in `verbs.py`, nothing is decided here."""

from __future__ import annotations

import argparse
import base64
import logging
import re
import signal
from dataclasses import asdict
from typing import TYPE_CHECKING

from geo.config import load
from geo.config_tree import Config
from geo.errors import UnsafeError, UsageError
from geo.log.names import Topic, check_subscription, check_topic_glob
from geo.output import Output, printable
from geo.trigger import parse_trigger
from geo.verbs import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from geo.subscription.dispatcher import Process

log = logging.getLogger(__name__)

BATCH_ROWS = 1_000
"""Messages that are printed, and held, at once."""


def consume(args: argparse.Namespace, output: Output) -> int:
    from geo.subscription.consumer import Subscription

    parse_trigger(args.trigger)
    config, topic = _named(args)
    config.cluster(args.cluster)
    acknowledged = _which(args.ack)
    subscription = Subscription(
        start_spark("geo consume"),
        topic,
        args.subscription,
        config=config,
        cluster=args.cluster,
        start=args.start,
        redelivery_delay_s=args.redelivery_delay,
        max_redeliveries=args.max_redeliveries,
        batch_rows=BATCH_ROWS,
        take_over=args.take_over,
    )

    def process(messages: DataFrame) -> DataFrame | None:
        for row in messages.collect():
            _print(row, output)
        return acknowledged(messages)

    signal.signal(signal.SIGTERM, lambda *_: subscription.stop())
    signal.signal(signal.SIGINT, lambda *_: subscription.stop())
    done = subscription.run(process, trigger=args.trigger, limit=args.limit, for_s=args.for_s)
    told = ", ".join(
        f"{count:,} {what.replace('_', ' ')}" for what, count in asdict(done).items() if count or what == "delivered"
    )
    log.info("%s: %s", subscription, told)
    return 0


def _which(ack: str) -> Process:
    """Of some messages those that `--ack` acknowledges."""
    if ack in ("all", "none"):
        return lambda messages: messages if ack == "all" else None
    try:
        re.compile(ack)
    except re.error as error:
        raise UsageError(f"--ack {ack!r} is neither all nor none nor a regular expression: {error}") from None
    return lambda messages: messages.where(messages["key"].rlike(ack))


def _print(row: Row, output: Output) -> None:
    fields = row.asDict(recursive=True)
    payload = fields.pop("payload")
    for name in ("event_time", "producer", "replicate_to"):  # what is not there is not told
        if fields[name] is None:
            del fields[name]
    if payload is not None:
        try:
            fields["payload"] = bytes(payload).decode("utf-8")
        except UnicodeDecodeError:
            fields["payload_base64"] = base64.b64encode(payload).decode()
    else:
        fields["payload"] = None
    output.line(fields)
    message_id = f"{fields.pop('origin')}:{fields.pop('ledger_id')}:{fields.pop('entry_id')}"
    said = {name: value for name, value in fields.items() if value not in (None, {}) and (name, value) != ("redelivery_count", 0)}
    shown = (f"{name}={printable(str(value))}" for name, value in said.items())
    output.text("  ".join([message_id, *shown]))


def subscriptions(args: argparse.Namespace, output: Output) -> int:
    from geo.subscription.admin import list_subscriptions

    found = list_subscriptions(start_spark("geo subscriptions"), load(args.config), check_topic_glob(args.topic))
    output.data([asdict(one) for one in found])
    output.table(
        ("TOPIC", "SUBSCRIPTION", "CLUSTER", "STATE", "EPOCH", "ACKNOWLEDGED"),
        [
            (o.topic, o.subscription, o.cluster, "deleted" if o.deleted else "consumed" if o.runs else "idle", o.epoch,
             f"{o.acknowledged:,}")
            for o in found
        ],
    )  # fmt: skip
    return 0


def create(args: argparse.Namespace, output: Output) -> int:
    from geo.subscription.admin import create as run

    config, topic = _named(args)
    state = run(start_spark("geo subscriptions"), config, args.cluster, topic, args.subscription, args.start)
    output.data({"topic": str(topic), "subscription": args.subscription, "cluster": args.cluster, "epoch": state.epoch.counter})
    output.text(f"subscription {args.subscription} of {topic} begins at {args.start}; links bring it to the other clusters")
    return 0


def reset(args: argparse.Namespace, output: Output) -> int:
    from geo.subscription.admin import reset as run

    config, topic = _named(args)
    given = (config, args.cluster, topic, args.subscription, args.to)
    spark = start_spark("geo subscriptions")
    done = run(spark, *given, dry_run=args.dry_run or not args.yes)
    output.data({**asdict(done), "dry_run": args.dry_run or not args.yes})
    what = f"subscription {args.subscription} of {topic} at {args.to}, as {args.cluster} holds it"
    told = f"{done.repeated:,} acknowledged messages are delivered again, {done.skipped:,} waiting ones are skipped"
    output.text(f"{what}: {told}")
    if not args.dry_run and not args.yes:
        raise UnsafeError("nothing was changed: this moves the subscription in every cluster. Run it again with --yes.")
    return 0


def delete(args: argparse.Namespace, output: Output) -> int:
    from geo.subscription.admin import delete as run

    config, topic = _named(args)
    if not args.yes:
        raise UnsafeError(
            f"this deletes subscription {args.subscription} of {topic} in every cluster, with all it acknowledged. "
            "Run it again with --yes."
        )
    run(start_spark("geo subscriptions"), config, args.cluster, topic, args.subscription)
    output.data({"topic": str(topic), "subscription": args.subscription, "cluster": args.cluster, "deleted": True})
    output.text(f"subscription {args.subscription} of {topic} is deleted; links tell the other clusters")
    return 0


def status(args: argparse.Namespace, output: Output) -> int:
    from geo.subscription.admin import status as run

    config, topic = _named(args)
    found = run(start_spark("geo subscriptions"), config, topic, args.subscription)
    output.data([asdict(one) for one in found])
    for one in found:
        if one.unreadable is not None:
            output.text(f"{one.cluster}: cannot be read: {one.unreadable}")
            continue
        runs = "deleted" if one.deleted else "a consumer runs" if one.runs else "no consumer runs"
        head = f"{one.cluster}: {runs}, epoch {one.epoch}, {one.acknowledged:,} acknowledged, backlog {one.backlog:,} messages"
        output.text(head + (f", moved {one.moved}" if one.moved else ""))
        for ledger, end in one.mark_delete.items():
            beyond = one.ranges_beyond.get(ledger, 0)
            output.text(f"  {ledger}: mark-delete {end}" + (f", {beyond:,} ranges beyond" if beyond else ""))
        for peer in one.peers:
            newest = f"newest acknowledgement {peer.age_s:,.1f} s old" if peer.age_s is not None else "no acknowledgement yet"
            output.text(f"  from {peer.cluster}: {newest}" + (f"; behind: {peer.behind}" if peer.behind else ""))
        for reason, count in one.refused.items():
            output.text(f"  {count:,} records refused: {reason}")
    return 0


def failover(args: argparse.Namespace, output: Output) -> int:
    from geo.subscription.failover import failover as run

    config, topic = _named(args)
    config.cluster(args.source), config.cluster(args.target)
    done = run(
        start_spark("geo failover"), config, topic, args.subscription, args.source, args.target,
        dry_run=args.dry_run, wait_s=args.wait,
    )  # fmt: skip
    output.data(asdict(done))
    last = f"{done.last_acknowledged:%Y-%m-%d %H:%M:%S} UTC" if done.last_acknowledged else "never"
    of_source = {
        "stopped": f"no consumer runs in {done.source}, all it acknowledged is known",
        "running": f"a consumer still runs in {done.source}: what it acknowledges from now on is repeated unless a link brings it in time",
        "killed": f"the consumer in {done.source} ended without a word; its last acknowledgement was at {last}",
        "unknown": f"{done.source} cannot be read ({done.source_unreadable}); its last acknowledgement that came here was at {last}",
    }
    output.text(of_source[done.consumer])
    output.text(f"{done.acknowledged:,} messages are acknowledged, {done.brought:,} of them {done.target} did not know of before")
    output.text(
        f"{done.target} delivers {done.to_deliver:,} messages, of which {done.repeated:,} were delivered before and not acknowledged"
        + (f": {done.repeated_ids}" if done.repeated else "")
    )
    if done.at_most_repeated > done.repeated:
        output.text(f"at most {done.at_most_repeated:,} are repeated: what {done.source} processed and could not tell any more")
    moved = f"{args.subscription} of {topic} moved from {done.source} to {done.target}"
    output.text(f"recorded: {moved}; start its consumer in {done.target}" if done.recorded else "nothing was written")
    return 0


def run_fold(args: argparse.Namespace, output: Output) -> int:
    from geo.subscription.folding import Folding

    parse_trigger(args.trigger)
    config = load(args.config)
    config.cluster(args.cluster)
    folding = Folding(start_spark("geo subscriptions"), config, args.cluster, trigger=args.trigger, take_over=args.take_over)
    signal.signal(signal.SIGTERM, lambda *_: folding.stop())
    signal.signal(signal.SIGINT, lambda *_: folding.stop())
    done = folding.run()
    output.data(asdict(done))
    output.text(f"{args.cluster}: {done.cursors:,} cursors written, {done.compacted:,} compact records published")
    return 0


def _named(args: argparse.Namespace) -> tuple[Config, Topic]:
    """The configuration and the topic, once both and the subscription's name are known to be right."""
    config, topic = load(args.config), Topic.parse(args.topic)
    check_subscription(args.subscription)
    if getattr(args, "cluster", None) is not None:
        config.cluster(args.cluster)
    return config, topic
