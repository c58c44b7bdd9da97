"""`geo subscriptions …`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from geo.cli import version_subscriptions as versions
from geo.cli.agreed import add_yes, require_agreement
from geo.cli.arguments import A_TIME, Verbs, add_dry_run, add_engine, add_glob, add_running, shown_start, start_position
from geo.cli.output import Output
from geo.cli.running import LookedAt, before_change, run_in_cluster, say_unreadable, starting, writable
from geo.cli.subscription_arguments import add_named, add_replicated, add_start, is_many, read_named, refuse_unknown
from geo.cli.subscription_status import status
from geo.config import Config, load
from geo.errors import GeoError, UsageError
from geo.journal.cluster import ClusterTables, StartSpark
from geo.late import late
from geo.names import DEFAULT_PRODUCER, Topic, check_topic_glob
from geo.now import utc_now
from geo.ops.named import Named, chosen, refuse_absent
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.record import key_of
from geo.subscription.acks.start_position import KafkaOffsets, StartPosition
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.status import Subscribed, matching, subscriptions_in
from geo.subscription.versions.version_status import is_version_subscription
from geo.subscription.versions.version_subscriptions import delete as delete_version
from geo.subscription.versions.version_subscriptions import version_subscription, version_subscriptions
from geo.text import counted, lasting

if TYPE_CHECKING:
    from geo.subscription import changes
    from geo.subscription.acks import namespace_folds
else:  # who looks does without Spark
    changes, namespace_folds = late("geo.subscription.changes"), late("geo.subscription.acks.namespace_folds")


def add_subscriptions(verbs: Verbs, does: str) -> None:
    of = verbs.add_noun("subscriptions", does)
    p = of.add("list", "list the subscriptions of every cluster", list_all)
    add_glob(p)
    add_engine(p)
    p = of.add("create", "create a subscription without consuming", create)
    add_named(p, cluster="where the record is written; links bring it to the others. With --mode version: where its consumer is")
    versions.add_mode(p)
    add_start(p, "where it begins")
    p.add_argument("--kafka", metavar="BOOTSTRAP", help="or where a consumer group of this Kafka cluster stands")
    p.add_argument("--kafka-topic", metavar="K", help="in the Kafka topic that was published into this topic")
    p.add_argument("--kafka-group", metavar="G", help="the group, whose committed offsets count")
    does = "with --kafka: who published that topic in --cluster (default: %(default)s)"
    p.add_argument("--producer", default=DEFAULT_PRODUCER, help=does)
    add_replicated(p, " (default: as the policy of the topic says, else true)")
    p = of.add("set", "let all regions share a subscription, or let it be of one region only, from here on", set_replicated)
    add_named(p, cluster="whose subscription it is, as that region has it")
    add_replicated(p, required=True)
    p = of.add("ack", "say up to which version of the log the consumer of a version subscription has processed all", ack)
    add_named(p, cluster="where its consumer is")
    p.add_argument("--version", required=True, type=versions.version, metavar="V", help="of the topic's log in that cluster")
    p = of.add("status", "how far a subscription is in every cluster, and why one is behind", status)
    add_named(p)
    add_engine(p)
    p = of.add("reset", "let a subscription begin again somewhere, in every cluster that shares it", reset)
    add_named(p, cluster="by whose log the place is found", many=True)
    where = f"TIME as {A_TIME}, MESSAGE_ID as eu:7:42"
    p.add_argument("--to", required=True, type=start_position, metavar="earliest|latest|TIME|MESSAGE_ID", help=where)
    add_dry_run(p, "say what it would repeat or skip, write nothing")
    add_yes(p)
    p = of.add("delete", "delete a subscription in every cluster that shares it; one of versions in its cluster alone", delete)
    add_named(p, cluster="where the record is written; links bring it to the others", many=True)
    add_dry_run(p, "say which it would delete, write nothing")
    add_yes(p)
    p = of.add("fold", "fold acknowledgements into system/cursors, and publish compact records", fold)
    p.add_argument("--cluster", required=True, help="the cluster whose acknowledgements are folded")
    add_running(p)
    p = of.add("sync", "find out where consumers of versions may go on in other clusters, and answer those", versions.sync)
    p.add_argument("--cluster", required=True, help="the cluster whose markers are read and written")
    add_running(p)


def list_all(args: argparse.Namespace, output: Output) -> int:
    looked = LookedAt("geo subscriptions", load(args.config), args.engine)
    glob = chosen(looked.regions, args.topic)

    def subscriptions(tables: ClusterTables) -> list[dict[str, Any]]:
        of_messages = [{**asdict(one), "mode": "messages"} for one in subscriptions_in(tables, glob, backlog=True)]
        return of_messages + [versions.listed(tables, one) for one in version_subscriptions(tables, glob)]

    found, unreadable = looked.read_each(subscriptions)
    found.sort(key=lambda one: (one["topic"], one["subscription"], one["cluster"]))
    output.data([*found, *unreadable])
    output.table(
        ("TOPIC", "SUBSCRIPTION", "CLUSTER", "STATE", "REPLICATED", "EPOCH", "ACKNOWLEDGED", "BACKLOG", "OLDEST"),
        [(one["topic"], one["subscription"], one["cluster"], *_columns(one)) for one in found],
    )
    return say_unreadable(output, unreadable)


_STATE = {"running": "consumed", "killed": "killed", "stopped": "idle"}


def _columns(one: Mapping[str, Any]) -> tuple[object, ...]:
    """State, whether it is replicated, epoch, what is acknowledged and what is not, of one that is listed."""
    if one["mode"] == "version":
        return *versions.columns(one), None
    state = "deleted" if one["deleted"] else _STATE[one["consumer"]]
    replicated, acknowledged = "yes" if one["replicated"] else "no", f"{one['acknowledged']:,}"
    return state, replicated, one["epoch"], acknowledged, _count(one["backlog"]), _age(one["oldest_at"])


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _age(time: datetime | None) -> str | None:
    return None if time is None else lasting((utc_now() - time).total_seconds())


def create(args: argparse.Namespace, output: Output) -> int:
    config, topic = read_named(args)
    is_version = args.mode == "version"
    if is_version and args.start != "earliest":
        raise UsageError("--start is of messages. Where a consumer of versions begins says who starts it, with startingVersion.")
    if not is_version and args.checkpoint is not None:
        raise UsageError("--checkpoint says how far a consumer of versions is: it goes with --mode version.")
    refuse_absent(before_change("geo subscriptions", config, args.cluster).clusters[args.cluster], topic)
    if is_version:
        return versions.create(args, output, config, topic)
    start = _start(args, config)
    spark, named = starting("geo subscriptions", config), (args.cluster, topic, args.subscription)
    known = changes.create(spark, config, *named, start, replicated=args.replicate_subscription_state)
    output.data({**_as_json(args, topic, known), "epoch": 0 if known.here is None else known.here.epoch.counter})
    where = f"it is of {args.cluster} only" if known.is_regional else "links bring it to the other clusters"
    output.text(f"subscription {args.subscription} of {topic} begins at {shown_start(start)}; {where}")
    return 0


def _start(args: argparse.Namespace, config: Config) -> StartPosition:
    """Tells where a subscription is to begin: as --start says, or where a consumer group of Kafka's stands."""
    of_kafka = (args.kafka, args.kafka_topic, args.kafka_group)
    if of_kafka == (None, None, None):
        start: StartPosition = args.start
        return start
    if None in of_kafka or args.start != "earliest":
        raise UsageError("--kafka, --kafka-topic and --kafka-group belong together, and stand for --start.")
    from geo.log.sources.kafka_access import settings_of
    from geo.log.sources.kafka_topic import KafkaTopic

    with closing(KafkaTopic(settings_of(config, args.kafka), args.kafka_topic)) as kafka_topic:
        return KafkaOffsets(args.kafka_topic, kafka_topic.group_offsets(args.kafka_group), args.cluster, args.producer)


def _as_json(args: argparse.Namespace, topic: Topic, known: SubscriptionState) -> dict[str, Any]:
    named = {"topic": str(topic), "subscription": args.subscription, "cluster": args.cluster, "mode": "messages"}
    return {**named, "replicated": not known.is_regional}


def set_replicated(args: argparse.Namespace, output: Output) -> int:
    config, topic = _read_known(args)
    tables, name, replicated = writable(args, config, "geo subscriptions"), args.subscription, args.replicate_subscription_state
    if version_subscription(tables, topic, name) is not None:
        return versions.set_replicated(tables, topic, name, output, replicated=replicated)
    before, now = changes.switch(starting("geo subscriptions", config), config, args.cluster, topic, name, replicated=replicated)
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
    return versions.ack(args, output, *_read_known(args))


def reset(args: argparse.Namespace, output: Output) -> int:
    config, wanted = _wanted(args)
    spark = starting("geo subscriptions", config)
    if not (args.yes or args.dry_run):
        require_agreement(args, output, _rehearsed(args, config, spark, wanted))

    def moved(topic: Topic, name: str) -> dict[str, Any]:
        done = changes.reset(spark, config, args.cluster, topic, name, args.to, dry_run=args.dry_run)
        what = f"subscription {name} of {topic} at {shown_start(args.to)}, as {args.cluster} holds it"
        effect = f"{done.repeated:,} acknowledged messages are delivered again, {done.skipped:,} waiting ones are skipped"
        output.text(f"{what}: {effect}")
        return {**asdict(done), "dry_run": args.dry_run}

    return _each(args, output, wanted, moved)


def _rehearsed(args: argparse.Namespace, config: Config, spark: StartSpark, wanted: list[Subscribed]) -> str:
    """Rehearses a reset. Of several those that would be refused are left out."""
    found = []
    for topic, name in wanted:
        with suppress(*(GeoError,) * is_many(args)):
            found.append(changes.reset(spark, config, args.cluster, topic, name, args.to, dry_run=True))
    which = f"subscription {wanted[0][1]} of {wanted[0][0]}" if len(wanted) == 1 else counted(len(wanted), "subscription")
    again, skipped = sum(one.repeated for one in found), sum(one.skipped for one in found)
    return (
        f"this moves {which} to {shown_start(args.to)} in every cluster that shares it; as {args.cluster} holds it "
        f"{counted(again, 'acknowledged message')} would be delivered again and {counted(skipped, 'waiting one')} skipped"
    )


def delete(args: argparse.Namespace, output: Output) -> int:
    config, wanted = _wanted(args, of_versions=True)
    named = ", ".join(f"{name} of {topic}" for topic, name in wanted)
    where = f"in every cluster that shares it, with all it acknowledged; one of versions in {args.cluster} alone"
    require_agreement(args, output, f"this deletes subscription {named} {where}")
    spark = starting("geo subscriptions", config)

    def deleted(topic: Topic, name: str) -> dict[str, Any]:
        if args.dry_run:
            output.text(f"subscription {name} of {topic} would be deleted {where}")
        elif version_subscription(tables := writable(args, config, "geo subscriptions"), topic, name) is not None:
            delete_version(tables, topic, name)
            output.text(
                f"version subscription {name} of {topic} is deleted in {args.cluster}; what it told the others stays there"
            )
        else:
            changes.delete(spark, config, args.cluster, topic, name)
            output.text(f"subscription {name} of {topic} is deleted; links tell the clusters that share it")
        deletion = {"topic": str(topic), "subscription": name, "cluster": args.cluster}
        return {**deletion, "deleted": not args.dry_run, "dry_run": args.dry_run}

    return _each(args, output, wanted, deleted)


def _each(args: argparse.Namespace, output: Output, wanted: list[Subscribed], do: Callable[[Topic, str], dict[str, Any]]) -> int:
    """Do it for each; of several one that is refused holds up no other. Returns the exit code."""
    if not is_many(args):
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


def _wanted(args: argparse.Namespace, *, of_versions: bool = False) -> tuple[Config, list[Subscribed]]:
    """The configuration, and the subscription that is named, or those that the cluster knows and that match both globs; with
    `of_versions` version subscriptions too."""
    if not is_many(args):
        config, topic = _read_known(args)
        return config, [(topic, args.subscription)]
    config = load(args.config)
    tables = LookedAt("geo subscriptions", config, "auto").clusters[config.cluster(args.cluster).name]
    topics = check_topic_glob(args.topic)
    wanted = matching(subscriptions_in(tables, topics), args.subscription)
    if of_versions:
        named = {(one.topic, one.subscription) for one in version_subscriptions(tables, topics)}
        wanted = sorted({*wanted, *(one for one in named if fnmatchcase(one[1], args.subscription))})
    if not wanted:
        raise UsageError(f"{args.cluster} knows no subscription {args.subscription} of {args.topic}.")
    return config, wanted


def _read_known(args: argparse.Namespace) -> tuple[Config, Topic]:
    """Reads as `read_named`, before Spark starts for it.

    Raises UsageError if no cluster knows the subscription. So it does if only others know one that links replicate to this one; one of
    versions is a cluster's own. Nothing is raised while a cluster that may know it cannot be read.
    """
    config, topic = read_named(args)
    looked, name = LookedAt("geo subscriptions", config, "auto"), args.subscription

    def known(tables: ClusterTables) -> list[tuple[str, bool]]:
        of_messages = read_known(tables, topic, name)
        is_there = key_of(topic, name) in {*of_messages.known, *of_messages.refused}
        of_versions = is_version_subscription(tables, topic, name)
        return [(tables.cluster.name, of_versions)] if is_there or of_versions else []

    found, away = looked.read_each(known)
    if not found and not away:
        refuse_unknown(looked, Named(looked.regions, topic), name)
    there = [cluster for cluster, _ in found]
    is_replicated = not any(of_versions for _, of_versions in found)
    if there and is_replicated and args.cluster not in (*there, *(one["cluster"] for one in away)):
        raise UsageError(
            f"{args.cluster} does not know subscription {name} of {topic}; {' and '.join(there)} {'have' if len(there) > 1 else 'has'} it. Change it "
            f"there (--cluster {there[0]}); links bring that here. One that is made here begins anew."
        )
    return config, topic


def fold(args: argparse.Namespace, output: Output) -> int:
    return run_in_cluster(
        args,
        output,
        "geo subscriptions",
        namespace_folds.Folding,
        lambda done: f"{counted(done.cursors, 'cursor')} written, {counted(done.compacted, 'compact record')} published",
    )
