"""`geo clusters …`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from geo.cli.agreed import add_yes, require_agreement
from geo.cli.arguments import Verbs, add_dry_run, add_engine
from geo.cli.output import Output
from geo.cli.running import LookedAt, say_unreadable, start_spark
from geo.config import load
from geo.journal.cluster import ClusterTables
from geo.late import late
from geo.log.topics import registered_topics
from geo.ops.removal import LOSE, LeftBehind
from geo.schemas import TOPICS
from geo.text import counted

if TYPE_CHECKING:
    from geo.ops import remove_cluster
else:  # who looks does without Spark
    remove_cluster = late("geo.ops.remove_cluster")


def add_clusters(verbs: Verbs, does: str) -> None:
    of_clusters = verbs.add_noun("clusters", does)
    p = of_clusters.add(
        "list", "list the clusters of the configuration: where each is, what it has, which links it has", list_clusters
    )
    add_engine(p)

    p = of_clusters.add(
        "remove", "let go, in all other clusters, of what hangs on a cluster; its own storage is left alone", remove
    )
    p.add_argument("name", metavar="NAME", help="the cluster, which may be away for good")
    add_dry_run(p, "say what would go, write nothing")
    p.add_argument(LOSE, action="store_true", dest="lose", help="also if it alone holds messages, or that is not known")
    add_yes(p)


def list_clusters(args: argparse.Namespace, output: Output) -> int:
    config = load(args.config)
    looked = LookedAt("geo clusters", config, args.engine)

    def listed(tables: ClusterTables) -> list[dict[str, Any]]:
        cluster = tables.cluster
        is_there, name = tables.journal(TOPICS).exists(), cluster.name
        return [
            {"cluster": name, "place": cluster.place, "root": cluster.root, "catalog": cluster.catalog, "schema": cluster.schema,
             "checkpoints": cluster.checkpoints, "is_there": is_there,
             "topics": sum(not one.topic.is_system for one in registered_topics(tables)) if is_there else 0,
             "reads": [one.source for one in config.inbound(name)],
             "read_by": [one.target for one in config.links if one.source == name]}
        ]  # fmt: skip

    found, unreadable = looked.read_each(listed)
    found.sort(key=lambda one: str(one["cluster"]))
    output.data([*found, *unreadable])
    output.table(
        ("CLUSTER", "PLACE", "TOPICS", "READS", "READ BY"),
        [(one["cluster"], one["place"], one["topics"] if one["is_there"] else "-", ",".join(one["reads"]), ",".join(one["read_by"])) for one in found],
    )  # fmt: skip
    for one in found:
        if not one["is_there"]:
            output.text(
                f"{one['cluster']}: nothing is at {one['place']} yet; the first topic there makes it. If something should be, its place is wrong."
            )
    return say_unreadable(output, unreadable)


def remove(args: argparse.Namespace, output: Output) -> int:
    config = load(args.config)
    remove_cluster.refuse_unknown(LookedAt("geo clusters remove", config, "auto").clusters, config, args.name)
    what = f"this lets go, in all other clusters, of what hangs on {args.name}: links with their cursors, requests, its name in policies"
    require_agreement(args, output, what)
    done = remove_cluster.remove_cluster(
        start_spark("geo clusters remove", config), config, args.name, lose=args.lose, dry_run=args.dry_run
    )
    output.data(_removed(done, dry_run=args.dry_run))
    for why in done.refused:
        output.text(f"would be refused: {why}")
    if done.unread is not None:
        output.text(f"what only {done.cluster} has is not known: {done.unread}")
    for topic in done.topics:
        output.text(*_topic_lines(done, topic))
    for one in done.others:
        output.text(_other_line(done, one, dry_run=args.dry_run))
    if not done.refused:
        output.text(f"The storage of {done.cluster} is left alone, and the messages of {done.cluster} that others hold stay.")
        if done.cluster in config.clusters:
            output.text(f"Take {done.cluster} out of {config.path} before a link from it runs again: it would begin anew.")
    return 1 if any(one.away is not None for one in done.others) else 0


def _removed(done: remove_cluster.RemovedCluster, *, dry_run: bool) -> dict[str, Any]:
    return {
        "cluster": done.cluster, "dry_run": dry_run, "refused": done.refused, "cannot_be_read": done.unread,
        "topics": [
            {"topic": one.topic, "only_there": None if one.only is None else one.only.messages,
             "only_there_examples": [] if one.only is None else one.only.examples, "lacking": one.lacking}
            for one in done.topics
        ],
        "clusters": [
            {"cluster": one.cluster, "links": one.links, "requests": one.requests, "pauses": one.pauses, "policies": one.policies,
             "cannot_be_read": one.away, "stays": one.stays}
            for one in done.others
        ],
    }  # fmt: skip


def _topic_lines(done: remove_cluster.RemovedCluster, one: LeftBehind) -> list[str]:
    lines = []
    if one.only is not None and one.only.messages:
        lines.append(f"{one.topic}: {one.only.told}")
    for other, count in sorted(one.lacking.items()):
        lines.append(
            f"{one.topic}: {other} lacks {counted(count, 'message')} of {done.cluster} that another cluster holds. Run the links out of "
            f"{done.cluster} first, or let a link into {other} from who holds them have {done.cluster} among its origins."
        )
    return lines


def _other_line(done: remove_cluster.RemovedCluster, one: remove_cluster.InCluster, *, dry_run: bool) -> str:
    if one.away is not None:
        return f"{one.cluster}: cannot be read: {one.away}. Run this again when it can."
    parts = (
        [f"link {done.cluster}->{one.cluster} of {counted(len(one.links), 'topic')}, with cursors and floors"]
        if one.links
        else []
    )
    parts += [f"{counted(one.requests, 'request')} to it"] if one.requests else []
    parts += [f"its name in the replication clusters of {', '.join(one.policies)}"] if one.policies else []
    stay = f"; {counted(one.pauses, 'request')} to pause it {'stays' if one.pauses == 1 else 'stay'} until this is run without it in the configuration"
    if not parts:
        return f"{one.cluster}: nothing hangs on {done.cluster}{stay if one.pauses else ''}"
    left = "" if one.stays is None else f". Of use to nobody, and not to be removed from here: {one.stays}"
    return f"{one.cluster}: {'would go' if dry_run else 'gone'}: {'; '.join(parts)}{stay if one.pauses else ''}{left}"
