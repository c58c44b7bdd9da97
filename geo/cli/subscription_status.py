"""`geo subscriptions status`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from geo.cli import version_subscriptions as versions
from geo.cli.output import Output, said
from geo.cli.running import LookedAt
from geo.cli.subscription_arguments import read_named, refuse_unknown
from geo.ops.named import Named
from geo.subscription import status as statuses
from geo.subscription.readiness import Readiness
from geo.subscription.status import Standing
from geo.subscription.versions.version_status import version_standings
from geo.text import counted, lasting, per_second

_CONSUMER = {
    "running": "a consumer runs",
    "killed": "no consumer runs, the last one did not stop cleanly",
    "stopped": "no consumer runs",
}


def status(args: argparse.Namespace, output: Output) -> int:
    config, topic = read_named(args)
    looked = LookedAt("geo subscriptions", config, args.engine)
    clusters = looked.clusters
    named = Named(looked.regions, topic)
    of_versions = {one: version_standings(clusters, config, one, args.subscription) for one in named.topics}
    if any(of_versions.values()):
        return versions.say_standings(of_versions, output)
    found = statuses.all_standings(clusters, config, named.topics, args.subscription)
    if not any(one.known for one in found):
        refuse_unknown(looked, named, args.subscription)
    output.data(list(map(_standing_as_json, found)))
    output.table(_HEAD, [_row(one) for one in found])
    whole = len(named.topics) == 1
    output.text(*dict.fromkeys(f"{one.cluster}: cannot be read: {one.unreadable}" for one in found if one.unreadable is not None))
    output.text(*(line for one in found if one.unreadable is None for line in (_whole(one) if whole else _short(one))))
    return int(any(one.unreadable is not None or one.lacking_shares for one in found))


def _standing_as_json(one: Standing) -> dict[str, Any]:
    failover = [{"reason" if name == "why" else name: value for name, value in said(ready).items()} for ready in one.failover]
    return {**said(one), "peers": list(map(asdict, one.peers)), "failover": failover}  # the keys of peers are older than the rule


_HEAD = ("TOPIC", "CLUSTER", "CONSUMER", "BACKLOG", "OLDEST", "ACKED/s", "DRAINED IN")


def _row(one: Standing) -> tuple[object, ...]:
    if one.unreadable is not None:
        return one.topic, one.cluster, "?", "?", "?", "?", "?"
    state = "deleted" if one.deleted else one.consumer if one.known else "not known"
    rate = "?" if one.acknowledged_per_s is None else per_second(one.acknowledged_per_s)
    lasts = "never" if one.drained_in_s is None else "" if not one.backlog else lasting(one.drained_in_s)
    return one.topic, one.cluster, state, f"{one.backlog:,}", "" if one.oldest_s is None else lasting(one.oldest_s), rate, lasts


def _whole(one: Standing) -> Iterator[str]:
    """All that no row has."""
    runs = "deleted" if one.deleted else _CONSUMER[one.consumer]
    runs += "" if one.replicated else ", of this region only"
    head = (
        f"{one.cluster}: {runs}, epoch {one.epoch}, {one.acknowledged:,} acknowledged, backlog {counted(one.backlog, 'message')}"
    )
    if one.known:
        yield head + (f", moved {one.moved}" if one.moved else "")
    else:
        yield f"{one.cluster}: does not know it, {counted(one.backlog, 'message')} there"
    for ledger, end in one.mark_delete.items():
        beyond = one.ranges_beyond.get(ledger, 0)
        yield f"  {ledger}: mark-delete {end}" + (f", {counted(beyond, 'range')} beyond" if beyond else "")
    for peer in one.peers:
        newest = f"newest acknowledgement {peer.age_s:,.1f} s old" if peer.age_s is not None else "no acknowledgement yet"
        yield f"  from {peer.cluster}: {newest}" + (f"; behind: {peer.behind}" if peer.behind else "")
    yield from (f"  {line}" for line in _to_look_at(one))


def _short(one: Standing) -> Iterator[str]:
    """Lines for one subscription of many: what somebody has to look at, and what a failover would do."""
    where = f"{one.topic} in {one.cluster}"
    for peer in one.peers:
        if peer.behind and not peer.unreadable:  # what cannot be read is said of all
            yield f"{where}: from {peer.cluster}: {peer.behind}"
    yield from (f"{where}: {line}" for line in _to_look_at(one))


def _to_look_at(one: Standing) -> Iterator[str]:
    yield from (f"{counted(count, 'record')} refused: {reason}" for reason, count in one.refused.items())
    if one.lacking_shares:
        yield f"nobody has {', '.join(one.lacking_shares)}: start a consumer of each (geo consume --key-range)"
    if one.known and not one.deleted and one.replicated:
        yield from map(partial(_failover_line, one.cluster), one.failover)


def _failover_line(cluster: str, ready: Readiness) -> str:
    """Line for what a failover would do if the cluster were lost now."""
    if ready.repeated is None:
        return f"if {cluster} is lost now: {ready.why}"
    missing = f", and lack {counted(ready.missing, 'message')} that wait" if ready.missing else ""
    return f"if {cluster} is lost now: {ready.target} would repeat {ready.repeated:,}, skip {ready.skipped:,}{missing}"
