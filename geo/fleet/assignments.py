"""Assignments of bundles to brokers, and what the leader says: `system/assignments`, `system/bundles`, and the claims of bundles in `system/owners`.
Beside them `system/load_averages`, which a leader keeps for the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

from geo.coordination.claims import Owner
from geo.coordination.ownership import Ownership
from geo.coordination.runners import Runner, broker_runner
from geo.crash import CrashPoint, reach
from geo.delta.process import Process
from geo.fleet.placement.averages import Averages, decode, encode
from geo.fleet.placement.bundles import Bundles
from geo.fleet.placement.handover import Assigned, Claim
from geo.fleet.placement.leading import Orders
from geo.journal.cluster import ClusterTables
from geo.journal.rows import Row, as_row, from_row
from geo.now import utc_now
from geo.schemas import ASSIGNMENTS, BUNDLES, LOAD_AVERAGES, OWNERS
from geo.text import first_line

log = logging.getLogger(__name__)


def bundle_runner(tables: ClusterTables, bundle: str) -> Runner:
    """Runner of a bundle's owner. What runs for its topics is owned piece by piece besides."""
    return Runner(f"{_prefix(tables)}{bundle}", f"bundle/{bundle}", f"bundle.{bundle}")


def member_runner(tables: ClusterTables, broker: str) -> Runner:
    """Runner of a broker that shares a cluster with others: its name."""
    return Runner(f"broker {broker} of {tables.cluster.name}", f"brokers/{broker}", f"broker.{broker}")


def leader_runner(tables: ClusterTables) -> Runner:
    """Runner of the leader beside `broker_runner`, which keeps brokers away that share with nobody: by it one sees that others do share."""
    return Runner(f"leader of {tables.cluster.name}", "leader", "leader")


def _prefix(tables: ClusterTables) -> str:
    return f"bundle of {tables.cluster.name}: "


@dataclass(frozen=True, slots=True)
class Owners:
    """The newest claims of a cluster's bundles by their names, and of the lead. `shares`: who has the lead, or had it, is one of several
    brokers, and not one that is alone."""

    bundles: Mapping[str, Owner] = field(default_factory=dict)
    lead: Owner | None = None
    shares: bool = False

    def claims(self, names: Mapping[str, str]) -> dict[str, Claim]:
        """The bundles' claims. `names` has the broker of each process by the process's name; one that has none is called by its process."""
        brokers = {}
        for holder in {one.holder for one in self.bundles.values()}:
            process = Process.decode(holder)
            brokers[holder] = "?" if process is None else names.get(process.name, str(process))
        return {name: Claim(brokers[one.holder], one.generation, released=not one.is_owned) for name, one in self.bundles.items()}

    def leader(self, names: Mapping[str, str]) -> str | None:
        """The broker that leads, or led last and has not given that up; None: nobody, or one that shares with nobody."""
        if self.lead is None or not self.lead.is_owned or not self.shares:
            return None
        process = Process.decode(self.lead.holder)
        return None if process is None else names.get(process.name)


def read_owners(tables: ClusterTables) -> Owners:
    """Names who owns the bundles of a cluster, and who leads."""
    prefix, owners = _prefix(tables), {one.runner: one for one in tables.journal(OWNERS).read(Owner)}
    bundles = {name.removeprefix(prefix): one for name, one in owners.items() if name.startswith(prefix)}
    lead, leader = owners.get(broker_runner(tables).name), owners.get(leader_runner(tables).name)
    return Owners(bundles, lead, shares=lead is not None and leader is not None and lead.token == leader.token)


def read_assignments(tables: ClusterTables) -> dict[str, Assigned]:
    """Names who is to own each bundle."""
    rows = tables.journal(ASSIGNMENTS).newest()
    return {row["bundle"]: from_row(Assigned, {**row, "since": row["since"].timestamp()}) for row in rows}


def read_bundles(tables: ClusterTables) -> dict[str, Bundles]:
    """The bundles of each namespace that has any."""
    return {row["namespace"]: Bundles(row["boundaries"]) for row in tables.journal(BUNDLES).newest()}


def write_orders(tables: ClusterTables, leader: Ownership, orders: Orders) -> None:
    """Write what a leader says, only if it still is the leader. The bundles of a namespace come before anybody is to own one of them.
    Raises FencedError otherwise."""
    journal = tables.journal(BUNDLES)
    last = max((row["number"] for row in journal.newest()), default=0) if orders.bundles else 0
    same = {"term": leader.generation, "number": last + 1}
    rows: list[Row] = [
        {"namespace": namespace, "boundaries": bundles.boundaries, "reason": reason, **same}
        for namespace, (bundles, reason) in orders.bundles.items()
    ]
    journal.append(rows, leader.append)
    if rows:
        reach(CrashPoint.PLACEMENT_BUNDLES_WRITTEN)
    rows = [
        {**as_row(one), "bundle": bundle, "since": datetime.fromtimestamp(one.since, timezone.utc)}
        for bundle, one in orders.assigned.items()
    ]
    tables.journal(ASSIGNMENTS).append(rows, leader.append)
    if rows:
        reach(CrashPoint.PLACEMENT_ASSIGNED)
    if orders.averages is not None:
        keep_averages(tables, leader, orders.averages)


def keep_averages(tables: ClusterTables, leader: Ownership, averages: Averages) -> None:
    """Keep what a leader knows of loads for the next one. Raises FencedError if it leads no longer."""
    journal = tables.journal(LOAD_AVERAGES)
    row = {"cluster": tables.cluster.name, "averages": encode(averages), "term": leader.generation,
           "number": max((row["number"] for row in journal.newest()), default=0) + 1, "kept_at": utc_now()}  # fmt: skip
    journal.append([row], leader.append)


def read_averages(tables: ClusterTables) -> Averages | None:
    """Averages that the leader before kept; None: nothing, or what this program does not understand."""
    for row in tables.journal(LOAD_AVERAGES).newest():
        try:
            return decode(row["averages"])
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s: averages of loads are not understood, and begin anew: %s", tables.cluster.name, first_line(error))
    return None
