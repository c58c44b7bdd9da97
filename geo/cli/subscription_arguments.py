"""The arguments by which verbs name a subscription and say how it is made, and what they name."""

from __future__ import annotations

import argparse
from typing import NoReturn

from geo.cli.arguments import TOPIC_FORM, flag
from geo.cli.arguments import start as parse_start
from geo.cli.running import LookedAt
from geo.config import Config, load
from geo.journal.cluster import ClusterTables
from geo.names import Topic, check_subscription, is_glob
from geo.ops.named import Named
from geo.subscription.status import subscriptions_in
from geo.subscription.versions.version_subscriptions import version_subscriptions


def add_named(p: argparse.ArgumentParser, *, cluster: str | None = None, many: bool = False) -> None:
    if cluster is not None:
        p.add_argument("--cluster", required=True, help=cluster)
    all_that = "; with * or ? all that match" if many else ""
    p.add_argument("--topic", required=True, help=f"{TOPIC_FORM}{all_that}")
    p.add_argument("--subscription", required=True, metavar="S", help=f"the named consumer group{all_that}")


def add_replicated(p: argparse.ArgumentParser, more: str = "", *, required: bool = False) -> None:
    does = f"whether all regions share the subscription, or it is of this region only{more}"
    p.add_argument("--replicate-subscription-state", type=flag, required=required, metavar="true|false", help=does)


def add_start(p: argparse.ArgumentParser, does: str) -> None:
    p.add_argument(
        "--start", type=parse_start, metavar="earliest|latest|TIME", default="earliest", help=f"{does} (default: %(default)s)"
    )


def is_many(args: argparse.Namespace) -> bool:
    """Tells whether a glob stands for several."""
    return is_glob(args.topic) or is_glob(args.subscription)


def read_named(args: argparse.Namespace) -> tuple[Config, Topic]:
    """The configuration and the topic, once both and the subscription's name are known to be right."""
    config, topic = load(args.config), Topic.parse(args.topic)
    check_subscription(args.subscription)
    if getattr(args, "cluster", None) is not None:
        config.cluster(args.cluster)
    return config, topic


def refuse_unknown(looked: LookedAt, named: Named, subscription: str) -> NoReturn:
    """Raises UsageError, by the subscriptions of the topics in all clusters that can be read."""
    wanted = set(map(str, named.topics))

    def names(tables: ClusterTables) -> list[str]:
        of_versions = [one.subscription for one in version_subscriptions(tables) if str(one.topic) in wanted]
        return of_versions + [one.subscription for one in subscriptions_in(tables) if one.topic in wanted and not one.deleted]

    found, _ = looked.read_each(names)
    named.refuse_subscription(subscription, found)
