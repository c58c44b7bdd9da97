"""`geo failover`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from geo.cli import version_subscriptions as versions
from geo.cli.arguments import Verbs, add_dry_run, seconds
from geo.cli.output import Output
from geo.cli.running import LookedAt, starting
from geo.cli.subscription_arguments import add_named, is_many, read_named
from geo.config import load
from geo.errors import GeoError, UsageError
from geo.names import Topic
from geo.ops.named import Named
from geo.subscription import failover as moving
from geo.subscription.status import Subscribed
from geo.subscription.versions.version_status import StartElsewhere, goes_by_versions, matching_versions, start_elsewhere
from geo.subscription.versions.version_subscriptions import is_of_messages
from geo.text import counted
from geo.times import shown_time


def add_failover(verbs: Verbs, does: str) -> None:
    p = verbs.add("failover", does, failover)
    add_named(p, many=True)
    p.add_argument("--from", required=True, dest="source", metavar="A", help="where it was consumed")
    p.add_argument("--to", required=True, dest="target", metavar="B", help="where it will be")
    of_source = p.add_mutually_exclusive_group()
    does = f"for a consumer that still runs (default: {moving.WAIT_S:.0f})"
    of_source.add_argument("--wait", type=seconds, default=moving.WAIT_S, metavar="SECONDS", help=does)
    does = "A is lost: do not look at the subscription there, go on with what has come to B"
    of_source.add_argument("--source-gone", action="store_true", help=does)
    add_dry_run(p, "say what will be repeated, write nothing")


def failover(args: argparse.Namespace, output: Output) -> int:
    options = {"dry_run": args.dry_run, "wait_s": args.wait, "source_gone": args.source_gone}
    config = load(args.config) if is_many(args) else read_named(args)[0]
    config.cluster(args.source), config.cluster(args.target)
    topics = args.topic
    looked = LookedAt("geo failover", config, "auto")
    clusters = looked.clusters
    clusters[args.target].refuse_unsafe_storage()
    if not is_many(args):
        topic = Topic.parse(args.topic)
        named = (topic, args.subscription, args.source, args.target)
        if not goes_by_versions(clusters, *named, source_gone=args.source_gone):
            try:
                start, (of, source, target) = starting("geo failover", config), named[1:]
                done = moving.failover(start, topic, of, config, source, target, **options)
            except UsageError:
                known = Named(looked.regions, topic)
                known.require()
                if known.topics == [topic]:
                    raise
                topics = known.glob  # of its partitions each has the subscription
            else:
                output.data(asdict(done))
                _say_moved(done, output)
                return 0
        elif not is_of_messages(clusters[args.target], topic, args.subscription):
            found = start_elsewhere(clusters, config, *named, source_gone=args.source_gone)
            output.data(versions.as_json(found, clusters[args.target]))
            return versions.say_start(found, clusters[args.target], output)
        # One of each kind: as by a glob that stands for them alone.
    matching = (topics, args.subscription, args.source, args.target)
    of_versions, stay = list[StartElsewhere](), dict[Subscribed, GeoError]()
    for one in matching_versions(clusters, *matching, source_gone=args.source_gone):
        try:
            of_versions.append(start_elsewhere(clusters, config, *one, args.source, args.target, source_gone=args.source_gone))
        except UsageError as error:
            stay[one] = error
    all_done, refused = moving.failover_all(
        starting("geo failover", config), config, *matching, none_is_fine=bool(of_versions or stay), **options
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
    last = f"of {shown_time(done.last_acknowledged)}" if done.last_acknowledged else "not known"
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
    output.text(
        f"recorded: {moved}; start its consumer in {done.target}"
        if done.recorded
        else "nothing was written; without --dry-run it moves"
    )
