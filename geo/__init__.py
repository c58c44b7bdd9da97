"""delta-geo: active-active geo-replication for topics that live in Delta Lake tables.

The calls for programs and notebooks, in one order of arguments. First stands what is read: rows; or the session, and of a file
where it is. Then the topic or its name and what of it, the configuration or its path, and the cluster or the two of a move.
What has a default follows by name, also `topics` where all are meant without it. `status` needs no session. Each is imported
when it is first asked for, so that whoever looks needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from geo.config import Config, load
    from geo.fleet.backfill import Backfill, backfill
    from geo.ids import MessageId
    from geo.log.publish import PublishOptions, publish, publish_json_lines, publish_kafka, publish_table
    from geo.names import Topic
    from geo.ops.status_facts import status
    from geo.ops.verify.verify import verify
    from geo.subscription.consumer import Subscription, Subscriptions
    from geo.subscription.failover import failover
    from geo.subscription.sink import append_once
    from geo.subscription.status import status as subscription_status

_PLACES = {
    "geo.config": ("Config", "load"),
    "geo.fleet.backfill": ("Backfill", "backfill"),
    "geo.ids": ("MessageId",),
    "geo.log.publish": ("PublishOptions", "publish", "publish_json_lines", "publish_kafka", "publish_table"),
    "geo.names": ("Topic",),
    "geo.ops.status_facts": ("status",),
    "geo.ops.verify.verify": ("verify",),
    "geo.subscription.consumer": ("Subscription", "Subscriptions"),
    "geo.subscription.failover": ("failover",),
    "geo.subscription.sink": ("append_once",),
}
_WHERE = {name: (module, name) for module, names in _PLACES.items() for name in names} | {
    "subscription_status": ("geo.subscription.status", "status")
}

__all__ = [
    "Backfill", "Config", "MessageId", "PublishOptions", "Subscription", "Subscriptions", "Topic", "append_once", "backfill", "failover", "load", "publish",
    "publish_json_lines", "publish_kafka", "publish_table", "status", "subscription_status", "verify",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _WHERE[name]
    try:
        return getattr(import_module(module), there)
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "delta"):
            raise
        from geo.errors import SetupError

        raise SetupError(f"{name} takes Spark, and there is no {error.name} here: pip install 'delta-geo[spark]'") from None


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
