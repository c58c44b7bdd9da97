"""What the brokers of a cluster read of who owns which bundle, and what its leader says: `system/assignments`, `system/bundles`, and the
claims of bundles in `system/owners`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import Row

from geo.fleet.placement.bundles import Bundles
from geo.fleet.placement.handover import Assigned, Claim
from geo.fleet.placement.leading import Orders
from geo.tables.cluster import ClusterTables
from geo.tables.journal import Journal
from geo.tables.ownership import Ownership, Runner, owners_of
from geo.tables.process import Process
from geo.times import utc
from schemas import ASSIGNMENTS, BUNDLES


def bundle_runner(tables: ClusterTables, bundle: str) -> Runner:
    """What the owner of a bundle owns. What runs for its topics is owned piece by piece besides."""
    return Runner(f"{_prefix(tables)}{bundle}", f"bundle/{bundle}", f"bundle.{bundle}")


def member_runner(tables: ClusterTables, broker: str) -> Runner:
    """What a broker owns that shares a cluster with others: its name."""
    return Runner(f"broker {broker} of {tables.cluster.name}", f"brokers/{broker}", f"broker.{broker}")


def _prefix(tables: ClusterTables) -> str:
    return f"bundle of {tables.cluster.name}: "


@dataclass(frozen=True, slots=True)
class BundleClaim:
    """The newest claim of a bundle, and when it was made or released."""

    claim: Claim
    since: datetime


def read_claims(tables: ClusterTables, names: Mapping[str, str]) -> dict[str, BundleClaim]:
    """The newest claim of each bundle. `names` has the broker of each process; one that is none, or has not come back under its name, is
    called by its process."""
    prefix = _prefix(tables)
    return {row["runner"].removeprefix(prefix): _claim(row, names) for row in owners_of(tables, prefix)}


def _claim(row: Row, names: Mapping[str, str]) -> BundleClaim:
    holder = Process.decode(row["holder"])
    broker = "?" if holder is None else names.get(holder.name, str(holder))
    return BundleClaim(Claim(broker, row["generation"], released=row["state"] == "released"), utc(row["since"]))


def read_assignments(tables: ClusterTables) -> dict[str, Assigned]:
    """Who is to own each bundle."""
    return {row["bundle"]: _assigned(row) for row in tables.journal(ASSIGNMENTS).newest()}


def _assigned(row: Row) -> Assigned:
    since = utc(row["since"]).timestamp()
    return Assigned(row["broker"], row["term"], row["number"], since, row["take_over"], row["reason"], row["request"])


def read_bundles(tables: ClusterTables) -> dict[str, Bundles]:
    """The bundles of each namespace of which any was ever split."""
    return {row["namespace"]: Bundles(row["boundaries"]) for row in tables.journal(BUNDLES).newest()}


def write_orders(tables: ClusterTables, leader: Ownership, term: int, orders: Orders) -> None:
    """Write what a leader says, only if it still is the leader. The bundles of a namespace come before anybody is to own one of them.
    Raises FencedError otherwise."""
    journal = tables.journal(BUNDLES)
    last = max((row["number"] for row in journal.newest()), default=0) if orders.bundles else 0
    _append(
        journal,
        leader,
        [
            {"namespace": namespace, "boundaries": list(bundles.boundaries), "term": term, "number": last + 1, "reason": reason}
            for namespace, (bundles, reason) in orders.bundles.items()
        ],
    )
    rows = [
        {"bundle": bundle, "broker": one.broker, "term": one.term, "number": one.number,
         "since": datetime.fromtimestamp(one.since, timezone.utc), "take_over": one.take_over, "reason": one.reason,
         "request": one.request}
        for bundle, one in orders.assigned.items()
    ]  # fmt: skip
    _append(tables.journal(ASSIGNMENTS), leader, rows)


def _append(journal: Journal, leader: Ownership, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        journal.append_as(leader.append, rows)
