"""`geo consume`, `geo subscriptions …`, `geo failover`."""

from __future__ import annotations

import argparse
import base64
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

from pyspark.sql import DataFrame

from geo.cli import version_subscriptions as versions
from geo.cli.arguments import (
    TOPIC_FORM,
    Verbs,
    add_dry_run,
    add_engine,
    add_glob,
    add_running,
    add_take_over,
    add_trigger,
    flag,
    from_1_to,
    key_range,
    seconds,
    start_position,
)
from geo.cli.arguments import start as parse_start
from geo.cli.output import Output
from geo.cli.running import LookedAt, run_in_cluster, say_unreadable, start_spark, stop_on_signals
from geo.config import Config, load
from geo.errors import GeoError, UnsafeError, UsageError
from geo.log.housekeeping import open_for_writing
from geo.log.topics import partitions
from geo.names import Topic, check_subscription, check_topic_glob, is_glob
from geo.streams.trigger import parse_trigger
from geo.subscription import changes
from geo.subscription import failover as moving
from geo.subscription import status as statuses
from geo.subscription.acks.namespace_folds import Folding
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.consumer import Subscription, Subscriptions
from geo.subscription.consumer.run import TRIGGER
from geo.subscription.consumer.settings import MOST_REDELIVERIES
from geo.subscription.consumer.subscription import REDELIVERY_DELAY_S
from geo.subscription.consumer.user_function import Listener
from geo.subscription.status import Subscribed, matching, subscriptions_in
from geo.subscription.version_status import (
    StartElsewhere,
    goes_by_versions,
    matching_versions,
    start_elsewhere,
    version_standings,
)
from geo.subscription.version_subscriptions import delete as delete_version
from geo.subscription.version_subscriptions import is_of_messages, version_subscription, version_subscriptions
from geo.tables.arrow_rows import collected
from geo.tables.cluster import ClusterTables, connect
from geo.text import counted, printable

log = logging.getLogger(__name__)

BATCH_ROWS = 1_000
"""Messages that are printed, and held, at once."""


def add_consume(verbs: Verbs, does: str) -> None:
    p = verbs.add("consume", does, consume)
    p.add_argument("--cluster", required=True, help="the cluster whose log is read")
    p.add_argument(
        "--topic",
        required=True,
        help=f"{TOPIC_FORM}, a partitioned one too; with * or ? all topics that match, dead letter topics only by a name with -DLQ",
    )
    p.add_argument("--subscription", required=True, metavar="S", help="the named consumer group")
    p.add_argument("--limit", type=from_1_to(10**12, "a number of messages"), metavar="N", help="stop after so many messages")
    p.add_argument("--for", type=seconds, dest="for_s", metavar="SECONDS", help="stop after so long")
    p.add_argument("--ack", default="all", metavar="all|none|REGEX", help="acknowledge all (default), none, or by the key")
    _add_start(p, "where a subscription begins of which there is no record yet")
    _add_replicated(p, " of which there is no record yet (default: as the policy of the topic says, else true)")
    p.add_argument(
        "--redelivery-delay",
        type=seconds,
        default=REDELIVERY_DELAY_S,
        metavar="SECONDS",
        help=f"of what is not acknowledged (default: {REDELIVERY_DELAY_S:.0f})",
    )
    p.add_argument(
        "--max-redeliveries",
        type=from_1_to(MOST_REDELIVERIES, f"a number from 1 to {MOST_REDELIVERIES}"),
        metavar="N",
        help="then a message goes to TOPIC-S-DLQ (default: it comes back until it is acknowledged, and an error ends the run)",
    )
    p.add_argument(
        "--origin",
        action="append",
        dest="origins",
        metavar="CLUSTER",
        help="only messages first written there; may be given again",
    )
    p.add_argument(
        "--key-range",
        type=key_range,
        metavar="I/N",
        help="be one of N consumers here that share the keys, 0/N to N-1/N: each key comes to one of them, in order",
    )
    waits = p.add_mutually_exclusive_group()
    waits.add_argument(
        "--standby",
        action="store_true",
        help="while another process consumes S in this cluster wait until it has ended, then go on",
    )
    p.add_argument(
        "--ignore-unreadable",
        action="store_true",
        help="begin though records of the subscription cannot be read, as those of a newer delta-geo: what they acknowledge comes again",
    )
    add_trigger(p, default=TRIGGER, also="also available-now: what is there")
    add_take_over(waits)


def add_subscriptions(verbs: Verbs, does: str) -> None:
    of = verbs.add_noun("subscriptions", does)
    p = of.add("list", "list the subscriptions of every cluster", list_all)
    add_glob(p)
    add_engine(p)
    p = of.add("create", "create a subscription without consuming", create)
    _add_named(p, cluster="where the record is written; links bring it to the others. With --mode version: where its consumer is")
    versions.add_mode(p)
    _add_start(p, "where it begins")
    _add_replicated(p, " (default: as the policy of the topic says, else true)")
    p = of.add("set", "let all regions share a subscription, or let it be of one region only, from here on", set_replicated)
    _add_named(p, cluster="whose subscription it is, as that region has it")
    _add_replicated(p, required=True)
    p = of.add("ack", "say up to which version of the log the consumer of a version subscription has processed all", ack)
    _add_named(p, cluster="where its consumer is")
    p.add_argument("--version", required=True, type=versions.version, metavar="V", help="of the topic's log in that cluster")
    p = of.add("status", "how far a subscription is in every cluster, and why one is behind", status)
    _add_named(p)
    add_engine(p)
    p = of.add("reset", "let a subscription begin again somewhere, in every cluster that shares it", reset)
    _add_named(p, cluster="by whose log the place is found", many=True)
    where = "TIME as 2026-11-21T12:00:00Z, MESSAGE_ID as eu:7:42"
    p.add_argument("--to", required=True, type=start_position, metavar="earliest|latest|TIME|MESSAGE_ID", help=where)
    add_dry_run(p, "say what it would repeat or skip, write nothing")
    p.add_argument("--yes", action="store_true", help="do it")
    p = of.add("delete", "delete a subscription in every cluster that shares it; one of versions in its cluster alone", delete)
    _add_named(p, cluster="where the record is written; links bring it to the others", many=True)
    p.add_argument("--yes", action="store_true", help="do it")
    p = of.add("fold", "fold acknowledgements into system/cursors, and publish compact records", fold)
    p.add_argument("--cluster", required=True, help="the cluster whose acknowledgements are folded")
    add_running(p)
    p = of.add("sync", "find out where consumers of versions may go on in other clusters, and answer those", versions.sync)
    p.add_argument("--cluster", required=True, help="the cluster whose markers are read and written")
    add_running(p)


def add_failover(verbs: Verbs, does: str) -> None:
    p = verbs.add("failover", does, failover)
    _add_named(p, many=True)
    p.add_argument("--from", required=True, dest="source", metavar="A", help="where it was consumed")
    p.add_argument("--to", required=True, dest="target", metavar="B", help="where it will be")
    of_source = p.add_mutually_exclusive_group()
    of_source.add_argument(
        "--wait",
        type=seconds,
        default=moving.WAIT_S,
        metavar="SECONDS",
        help=f"for a consumer that still runs (default: {moving.WAIT_S:.0f})",
    )
    of_source.add_argument(
        "--source-gone",
        action="store_true",
        help="A is lost: do not look at the subscription there, go on with what has come to B",
    )
    add_dry_run(p, "say what will be repeated, write nothing")


def _add_named(p: argparse.ArgumentParser, *, cluster: str | None = None, many: bool = False) -> None:
    if cluster is not None:
        p.add_argument("--cluster", required=True, help=cluster)
    all_that = "; with * or ? all that match" if many else ""
    p.add_argument("--topic", required=True, help=f"{TOPIC_FORM}{all_that}")
    p.add_argument("--subscription", required=True, metavar="S", help=f"the named consumer group{all_that}")


def _add_replicated(p: argparse.ArgumentParser, more: str = "", *, required: bool = False) -> None:
    p.add_argument(
        "--replicate-subscription-state",
        type=flag,
        required=required,
        metavar="true|false",
        help=f"whether all regions share the subscription, or it is of this region only{more}",
    )


def _add_start(p: argparse.ArgumentParser, does: str) -> None:
    p.add_argument(
        "--start", type=parse_start, metavar="earliest|latest|TIME", default="earliest", help=f"{does} (default: %(default)s)"
    )


def consume(args: argparse.Namespace, output: Output) -> int:
    parse_trigger(args.trigger)
    config = load(args.config)
    check_subscription(args.subscription)
    config.cluster(args.cluster)
    acknowledged = _which(args.ack)
    many = is_glob(args.topic)
    check_topic_glob(args.topic) if many else Topic.parse(args.topic)
    _refuse_of_one_topic(args, many=many)
    spark = start_spark("geo consume", config)
    tables = open_for_writing(connect(spark, config.cluster(args.cluster)), config)
    many = many or bool(partitions(tables, Topic.parse(args.topic)))
    _refuse_of_one_topic(args, many=many)
    options: dict[str, Any] = {
        "config": config,
        "cluster": args.cluster,
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

    def listener(messages: DataFrame) -> DataFrame | None:
        for fields in collected(messages):
            _print(fields, output)
        return acknowledged(messages)

    unfinished: Mapping[str, str] = {}
    if many:
        subscriptions = Subscriptions(spark, args.topic, args.subscription, **options)
        stop_on_signals(args, subscriptions.stop)
        done = subscriptions.run(listener, trigger=args.trigger, for_s=args.for_s)
        unfinished = subscriptions.unfinished
    else:
        subscription = Subscription(spark, args.topic, args.subscription, standby=args.standby, **options)
        stop_on_signals(args, subscription.stop)
        done = subscription.run(listener, trigger=args.trigger, limit=args.limit, for_s=args.for_s)
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
    """Of some messages those that `--ack` acknowledges."""
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
    shown = (f"{name}={printable(str(value))}" for name, value in said.items())
    output.text("  ".join([message_id, *shown]))


def list_all(args: argparse.Namespace, output: Output) -> int:
    config, glob = load(args.config), check_topic_glob(args.topic)

    def subscriptions(tables: ClusterTables) -> list[dict[str, Any]]:
        of_messages = [{**asdict(one), "mode": "messages"} for one in subscriptions_in(tables, glob)]
        return of_messages + [versions.listed(tables, one) for one in version_subscriptions(tables, glob)]

    found, unreadable = LookedAt("geo subscriptions", config, args.engine).read_each(subscriptions)
    found.sort(key=lambda one: (one["topic"], one["subscription"], one["cluster"]))
    output.data([*found, *unreadable])
    output.table(
        ("TOPIC", "SUBSCRIPTION", "CLUSTER", "STATE", "REPLICATED", "EPOCH", "ACKNOWLEDGED"),
        [(one["topic"], one["subscription"], one["cluster"], *_columns(one)) for one in found],
    )
    return say_unreadable(output, unreadable)


def _columns(one: Mapping[str, Any]) -> tuple[object, ...]:
    """State, whether it is replicated, epoch and what is acknowledged, of one that is listed."""
    if one["mode"] == "version":
        return versions.columns(one)
    state = "deleted" if one["deleted"] else "consumed" if one["runs"] else "idle"
    return state, "yes" if one["replicated"] else "no", one["epoch"], f"{one['acknowledged']:,}"


def create(args: argparse.Namespace, output: Output) -> int:
    config, topic = _named(args)
    if args.mode == "version":
        return versions.create(args, output, config, topic)
    if args.checkpoint is not None:
        raise UsageError("--checkpoint says how far a consumer of versions is: it goes with --mode version.")
    spark, named = start_spark("geo subscriptions", config), (args.cluster, topic, args.subscription)
    known = changes.create(spark, config, *named, args.start, replicated=args.replicate_subscription_state)
    output.data({**_as_json(args, topic, known), "epoch": 0 if known.here is None else known.here.epoch.counter})
    where = f"it is of {args.cluster} only" if known.is_regional else "links bring it to the other clusters"
    output.text(f"subscription {args.subscription} of {topic} begins at {args.start}; {where}")
    return 0


def _as_json(args: argparse.Namespace, topic: Topic, known: SubscriptionState) -> dict[str, Any]:
    named = {"topic": str(topic), "subscription": args.subscription, "cluster": args.cluster, "mode": "messages"}
    return {**named, "replicated": not known.is_regional}


def set_replicated(args: argparse.Namespace, output: Output) -> int:
    config, topic = _named(args)
    spark, replicated = start_spark("geo subscriptions", config), args.replicate_subscription_state
    tables, name = open_for_writing(connect(spark, config.cluster(args.cluster)), config), args.subscription
    if version_subscription(tables, topic, name) is not None:
        return versions.set_replicated(tables, topic, name, output, replicated=replicated)
    before, now = changes.switch(spark, config, args.cluster, topic, name, replicated=replicated)
    output.data({**_as_json(args, topic, now), "changed": before != now})
    of = f"subscription {name} of {topic}"
    if before == now:
        output.text(f"{of} in {args.cluster} is so already; nothing was written")
    elif now.is_regional:
        output.text(
            f"{of} is of {args.cluster} only from here on, as it is; the other clusters keep what they were told, and {args.cluster} tells and "
            "hears nothing more"
        )
    else:
        output.text(f"{of} is shared by all regions from here on, exactly as {args.cluster} has it; links bring it to the others")
    return 0


def ack(args: argparse.Namespace, output: Output) -> int:
    return versions.ack(args, output, *_named(args))


def reset(args: argparse.Namespace, output: Output) -> int:
    config, wanted = _wanted(args)
    spark, dry_run = start_spark("geo subscriptions", config), args.dry_run or not args.yes

    def moved(topic: Topic, name: str) -> dict[str, Any]:
        done = changes.reset(spark, config, args.cluster, topic, name, args.to, dry_run=dry_run)
        what = f"subscription {name} of {topic} at {args.to}, as {args.cluster} holds it"
        effect = f"{done.repeated:,} acknowledged messages are delivered again, {done.skipped:,} waiting ones are skipped"
        output.text(f"{what}: {effect}")
        return {**asdict(done), "dry_run": dry_run}

    code = _each(args, output, wanted, moved)
    if not args.dry_run and not args.yes:
        raise UnsafeError(
            "nothing was changed: this moves the subscription in every cluster that shares it. Run it again with --yes."
        )
    return code


def delete(args: argparse.Namespace, output: Output) -> int:
    config, wanted = _wanted(args, of_versions=True)
    if not args.yes:
        named = ", ".join(f"{name} of {topic}" for topic, name in wanted)
        raise UnsafeError(
            f"this deletes subscription {named} in every cluster that shares it, with all it acknowledged; one of versions in {args.cluster} alone. "
            "Run it again with --yes."
        )
    spark = start_spark("geo subscriptions", config)

    def deleted(topic: Topic, name: str) -> dict[str, Any]:
        tables = open_for_writing(connect(spark, config.cluster(args.cluster)), config)
        if version_subscription(tables, topic, name) is not None:
            delete_version(tables, topic, name)
            output.text(
                f"version subscription {name} of {topic} is deleted in {args.cluster}; what it told the others stays there"
            )
            return {"topic": str(topic), "subscription": name, "cluster": args.cluster, "deleted": True}
        changes.delete(spark, config, args.cluster, topic, name)
        output.text(f"subscription {name} of {topic} is deleted; links tell the clusters that share it")
        return {"topic": str(topic), "subscription": name, "cluster": args.cluster, "deleted": True}

    return _each(args, output, wanted, deleted)


def _each(args: argparse.Namespace, output: Output, wanted: list[Subscribed], do: Callable[[Topic, str], dict[str, Any]]) -> int:
    """Do it for each; of several one that is refused holds up no other. Returns the exit code."""
    if not _is_many(args):
        output.data(do(*wanted[0]))
        return 0
    told, code = [], 0
    for topic, name in wanted:
        try:
            told.append(do(topic, name))
        except GeoError as error:
            told.append({"topic": str(topic), "subscription": name, "refused": str(error)})
            output.text(f"subscription {name} of {topic}: {error}")
            code = max(code, error.exit_code)
    output.data(told)
    return code


def _is_many(args: argparse.Namespace) -> bool:
    return is_glob(args.topic) or is_glob(args.subscription)


def _wanted(args: argparse.Namespace, *, of_versions: bool = False) -> tuple[Config, list[Subscribed]]:
    """The configuration, and the subscription that is named, or those that the cluster knows and that match both globs; with
    `of_versions` version subscriptions too."""
    if not _is_many(args):
        config, topic = _named(args)
        return config, [(topic, args.subscription)]
    config = load(args.config)
    tables = connect(start_spark("geo subscriptions", config), config.cluster(args.cluster))
    topics = check_topic_glob(args.topic)
    wanted = matching(subscriptions_in(tables, topics), args.subscription)
    if of_versions:
        named = {(one.topic, one.subscription) for one in version_subscriptions(tables, topics)}
        wanted = sorted({*wanted, *(one for one in named if fnmatchcase(one[1], args.subscription))})
    if not wanted:
        raise UsageError(f"{args.cluster} knows no subscription {args.subscription} of {args.topic}.")
    return config, wanted


_CONSUMER = {
    "running": "a consumer runs",
    "killed": "no consumer runs, the last one did not stop cleanly",
    "stopped": "no consumer runs",
}


def status(args: argparse.Namespace, output: Output) -> int:
    config, topic = _named(args)
    clusters = LookedAt("geo subscriptions", config, args.engine).clusters
    if of_versions := version_standings(clusters, config, topic, args.subscription):
        return versions.say_standings(of_versions, output)
    found = statuses.standings(clusters, config, topic, args.subscription)
    output.data([asdict(one) for one in found])
    for one in found:
        if one.unreadable is not None:
            output.text(f"{one.cluster}: cannot be read: {one.unreadable}")
            continue
        runs = "deleted" if one.deleted else _CONSUMER[one.consumer]
        runs += "" if one.replicated else ", of this region only"
        head = f"{one.cluster}: {runs}, epoch {one.epoch}, {one.acknowledged:,} acknowledged, backlog {counted(one.backlog, 'message')}"
        output.text(head + (f", moved {one.moved}" if one.moved else ""))
        for ledger, end in one.mark_delete.items():
            beyond = one.ranges_beyond.get(ledger, 0)
            output.text(f"  {ledger}: mark-delete {end}" + (f", {counted(beyond, 'range')} beyond" if beyond else ""))
        for peer in one.peers:
            newest = f"newest acknowledgement {peer.age_s:,.1f} s old" if peer.age_s is not None else "no acknowledgement yet"
            output.text(f"  from {peer.cluster}: {newest}" + (f"; behind: {peer.behind}" if peer.behind else ""))
        for reason, count in one.refused.items():
            output.text(f"  {counted(count, 'record')} refused: {reason}")
        if one.lacking_shares:
            output.text(f"  nobody has {', '.join(one.lacking_shares)}: start a consumer of each (geo consume --key-range)")
    return int(any(one.unreadable is not None or one.lacking_shares for one in found))


def failover(args: argparse.Namespace, output: Output) -> int:
    options = {"dry_run": args.dry_run, "wait_s": args.wait, "source_gone": args.source_gone}
    config = load(args.config) if _is_many(args) else _named(args)[0]
    config.cluster(args.source), config.cluster(args.target)
    matching = (args.topic, args.subscription, args.source, args.target)
    clusters = LookedAt("geo failover", config, "auto").clusters
    clusters[args.target].refuse_unsafe_storage()
    if not _is_many(args):
        topic = Topic.parse(args.topic)
        named = (topic, args.subscription, args.source, args.target)
        if not goes_by_versions(clusters, *named, source_gone=args.source_gone):
            done = moving.failover(start_spark("geo failover", config), config, *named, **options)
            output.data(asdict(done))
            _say_moved(done, output)
            return 0
        if not is_of_messages(clusters[args.target], topic, args.subscription):
            found = start_elsewhere(clusters, config, *named, source_gone=args.source_gone)
            output.data(versions.as_json(found, clusters[args.target]))
            return versions.say_start(found, clusters[args.target], output)
        # One of each kind: as by a glob that stands for them alone.
    of_versions, stay = list[StartElsewhere](), dict[Subscribed, GeoError]()
    for one in matching_versions(clusters, *matching, source_gone=args.source_gone):
        try:
            of_versions.append(start_elsewhere(clusters, config, *one, args.source, args.target, source_gone=args.source_gone))
        except UsageError as error:
            stay[one] = error
    all_done, refused = moving.failover_all(
        start_spark("geo failover", config), config, *matching, none_is_fine=bool(of_versions or stay), **options
    )
    refused = {**stay, **refused}
    told = [{"topic": str(topic), "subscription": name, "refused": str(why)} for (topic, name), why in refused.items()]
    output.data([*map(asdict, all_done), *told, *(versions.as_json(one, clusters[args.target]) for one in of_versions)])
    by_versions = {(one.topic, one.subscription) for one in of_versions}
    of_messages = {(done.topic, done.subscription) for done in all_done} | {(str(topic), name) for topic, name in refused}
    for done in all_done:
        as_one = ", as one of messages" if (done.topic, done.subscription) in by_versions else ""
        _say_moved(done, output, f"{done.subscription} of {done.topic}{as_one}:")
    for (topic, name), why in refused.items():
        output.text(f"{name} of {topic} is not moved: {why}")
    codes = [
        versions.say_start(one, clusters[args.target], output, is_of_both=(one.topic, one.subscription) in of_messages)
        for one in of_versions
    ]
    return max([why.exit_code for why in refused.values()] + codes, default=0)


def _say_moved(done: moving.Failover, output: Output, *head: str) -> None:
    output.text(*head)
    last = f"of {done.last_acknowledged:%Y-%m-%d %H:%M:%S} UTC" if done.last_acknowledged else "not known"
    of_source = {
        "stopped": f"no consumer runs in {done.source}, all it acknowledged is known",
        "running": f"a consumer still runs in {done.source}: what it acknowledges from now on is repeated unless a link brings it in time",
        "killed": f"the consumer in {done.source} ended without telling all that it acknowledged; its last record is {last}",
        "unknown": f"{done.source}: {done.source_unreadable}; its last record that came here is {last}",
    }
    output.text(of_source[done.consumer])
    output.text(
        f"{counted(done.acknowledged, 'message')} acknowledged, {done.brought:,} of them {done.target} did not know of before"
    )
    output.text(
        f"{done.target} delivers {counted(done.to_deliver, 'message')}, of which {done.repeated:,} were delivered before and not acknowledged"
        + (f": {done.repeated_ids}" if done.repeated else "")
    )
    if done.at_most_repeated > done.repeated:
        output.text(f"at most {done.at_most_repeated:,} are repeated: what {done.source} processed and could not tell any more")
    moved = f"{done.subscription} of {done.topic} moved from {done.source} to {done.target}"
    output.text(f"recorded: {moved}; start its consumer in {done.target}" if done.recorded else "nothing was written")


def fold(args: argparse.Namespace, output: Output) -> int:
    done = run_in_cluster(args, "geo subscriptions", Folding)
    output.data(asdict(done))
    output.text(
        f"{args.cluster}: {counted(done.cursors, 'cursor')} written, {counted(done.compacted, 'compact record')} published"
    )
    for namespace, why in done.unfinished.items():
        output.text(f"{namespace}: {why}")
    return 1 if done.unfinished else 0


def _named(args: argparse.Namespace) -> tuple[Config, Topic]:
    """The configuration and the topic, once both and the subscription's name are known to be right."""
    config, topic = load(args.config), Topic.parse(args.topic)
    check_subscription(args.subscription)
    if getattr(args, "cluster", None) is not None:
        config.cluster(args.cluster)
    return config, topic
