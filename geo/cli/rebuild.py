"""`geo rebuild`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from geo.cli.agreed import add_yes, require_agreement
from geo.cli.arguments import Verbs, add_dry_run, add_glob
from geo.cli.output import Output
from geo.cli.running import before_change, load_for, start_spark
from geo.errors import UsageError
from geo.names import check_topic_glob
from geo.ops.named import require_matching
from geo.replication.rebuild import rebuild
from geo.text import counted


def add_rebuild(verbs: Verbs, does: str) -> None:
    p = verbs.add("rebuild", does, rebuild_cluster)
    p.add_argument("--cluster", required=True, help="the region that lost data; its producers must be stopped")
    p.add_argument("--from", required=True, dest="peer", metavar="PEER", help="the cluster that holds them")
    add_glob(p)
    add_dry_run(p)
    add_yes(p)


def rebuild_cluster(args: argparse.Namespace, output: Output) -> int:
    config = load_for(args)
    config.cluster(args.peer)
    if args.cluster == args.peer:
        raise UsageError("a cluster is rebuilt from another one.")
    require_matching(before_change("geo rebuild", config, args.cluster).clusters[args.peer], args.topic)
    what = f"this appends to {args.cluster} what {args.peer} holds of its own messages; its producers have to be stopped"
    require_agreement(args, output, what)
    done = rebuild(
        start_spark("geo rebuild", config), config, args.cluster, args.peer, check_topic_glob(args.topic), dry_run=args.dry_run
    )
    output.data([{**asdict(one), "cluster": args.cluster, "from": args.peer, "dry_run": args.dry_run} for one in done])
    verb = "would come back" if args.dry_run else "came back"
    for one in done:
        output.text(f"{one.topic}: {counted(one.messages, 'message')} of {args.cluster} {verb} from {args.peer}")
    output.text(*(f"{one.topic}: {one.unclear}" for one in done if one.unclear is not None))
    return 0
