"""The one who consumes a subscription, or a share of its keys, in a cluster, and what owners and signs of life tell of that. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from geo.coordination.claims import Liveness, Owner
from geo.coordination.holder import Holder
from geo.coordination.holders import RegionHolders
from geo.coordination.owners import owners_of
from geo.coordination.runners import name_of_share, subscription_prefix
from geo.journal.cluster import ClusterTables
from geo.names import Topic


class ConsumerState(str, Enum):
    """State of the consumer of a subscription in one cluster, as far as it is known."""

    STOPPED = "stopped"
    """None runs, and what the last one acknowledged is published."""
    RUNNING = "running"
    """One gives signs of life."""
    KILLED = "killed"
    """It ended, or is silent for longer than `owner_timeout`, and may have acknowledged more than is published."""


def consumers_in(tables: ClusterTables, wanted: Sequence[tuple[Topic, str]]) -> dict[tuple[Topic, str], ConsumerState]:
    """Finds the state, in a cluster, of the consumer of each of the subscriptions, or, where several share its keys, of all of them. Owners are read
    once.
    """
    only = subscription_prefix(tables, *wanted[0]) if len(wanted) == 1 else "subscription "
    states = shares_by_prefix(tables, only)
    return {one: of_shares(states.get(subscription_prefix(tables, *one), {})) for one in wanted}


def shares_by_prefix(tables: ClusterTables, begins: str = "subscription ") -> dict[str, dict[str, ConsumerState]]:
    """States of the consumers whose runners' names begin so: by `subscription_prefix`, and by share of the keys (empty: of all keys)."""
    states: dict[str, dict[str, ConsumerState]] = {}
    owners = owners_of(tables, begins)
    holders = RegionHolders(tables, owners)
    for one in owners:
        whole, _, share = one.runner.partition(", ")
        states.setdefault(whole, {})[share] = _state(holders.of(one))
    return states


def of_shares(shares: Mapping[str, ConsumerState]) -> ConsumerState:
    """The state of all shares of a subscription: one that runs goes before one that was killed."""
    found = set(shares.values())
    return next((one for one in (ConsumerState.RUNNING, ConsumerState.KILLED) if one in found), ConsumerState.STOPPED)


def lacking_shares(shares: Mapping[str, ConsumerState]) -> list[str]:
    """The shares of the keys that nobody has, where somebody has another one of as many."""
    running = {share for share, state in shares.items() if state is ConsumerState.RUNNING}
    counts = {int(share.rpartition(" of ")[2]) for share in running if share}
    of_all = [name_of_share(number, count) for count in sorted(counts) for number in range(count)]
    return [] if "" in running else [share for share in of_all if share not in running]


def consumers_of(tables: ClusterTables, topic: Topic, subscription: str) -> list[Owner]:
    """All who ever delivered the subscription, or a share of it, in this cluster."""
    whole = subscription_prefix(tables, topic, subscription)
    return [one for one in owners_of(tables, whole) if one.runner.partition(",")[0] == whole]


def _state(found: Holder) -> ConsumerState:
    if found.liveness is Liveness.ENDED:
        return ConsumerState.KILLED if found.claim.in_flight else ConsumerState.STOPPED
    return ConsumerState.KILLED if found.is_dead else ConsumerState.RUNNING
