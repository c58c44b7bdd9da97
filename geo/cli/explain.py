"""`geo explain`."""

from __future__ import annotations

import argparse
from typing import Any

from geo.cli.arguments import TOPIC_FORM, Verbs, add_engine
from geo.cli.named import Named
from geo.cli.output import Output
from geo.cli.running import LookedAt
from geo.config import load
from geo.names import Topic
from geo.ops.explain_facts import CommitAt, Explained, explain
from geo.text import counted


def add_explain(verbs: Verbs, does: str) -> None:
    p = verbs.add("explain", does, say)
    p.add_argument("topic", metavar="TOPIC", help=f"{TOPIC_FORM}; a partitioned topic: all its partitions")
    add_engine(p)


def say(args: argparse.Namespace, output: Output) -> int:
    config, topic = load(args.config), Topic.parse(args.topic)
    looked = LookedAt("geo explain", config, args.engine)
    topics = Named(looked, topic).require()
    found = [(one, explain(looked.clusters, config, one)) for one in topics]
    output.data([{"topic": str(one), "links": [_as_json(way) for way in ways]} for one, ways in found])
    for one, ways in found:
        output.text(str(one), *(line for way in ways for line in lines(way)))
    return int(any(way.is_finding for _, ways in found for way in ways))


def _as_json(one: Explained) -> dict[str, Any]:
    decision, status, cursor, messages = one.decision, one.status, one.cursor, one.messages
    lag = None if status is None else status.lag
    return {
        "link": f"{one.source}->{one.target}", "replicated": decision.replicated, "level": decision.level, "where": decision.where,
        "reason": decision.reason, "do": decision.do, "unread": one.unread,
        "messages": None if messages.since_us is None else {"for_target": messages.to_target, "for_others": messages.to_others},
        "state": status and status.state.value, "state_reason": status and status.reason,
        "source_version": status and status.at, "source_newest": status and status.newest, "in_sync": status and status.in_sync,
        "lag_messages": lag and lag.messages, "lag_bytes": lag and lag.bytes, "lag_seconds": lag and lag.seconds,
        "lag_complete": lag and lag.complete,
        "cursor": None if cursor is None else {
            "version": cursor.version, "source_commit": _commit(cursor.source), "target_commit": _commit(cursor.brought),
            "owner": cursor.owner,
        },
    }  # fmt: skip


def _commit(one: CommitAt | None) -> dict[str, Any] | None:
    return None if one is None else {"version": one.version, "commit_id": one.commit_id, "by": one.by, "at": one.at}


def lines(one: Explained) -> list[str]:
    """One way of a topic, as people read it."""
    decision, messages = one.decision, one.messages
    is_so = {True: "replicated", False: "not replicated", None: "not known"}[decision.replicated]
    by = decision.where if decision.level is None else f"{decision.level.value}, {decision.where}"
    said = [f"{one.source}->{one.target}: {is_so}: {decision.reason} ({by})"]
    if decision.do is not None:
        said.append(f"    to change that: {decision.do}")
    if one.unread is not None:
        said.append(f"    {one.target} cannot be read: {one.unread}")
    if decision.replicated and messages.to_others:
        all_of = messages.to_others + messages.to_target
        said.append(
            f"    of the newest {counted(all_of, 'message')} {messages.to_others:,} are not for {one.target} (replicate_to)"
        )
    return [f"  {line}" for line in (*said, *_standing(one))]


def _standing(one: Explained) -> list[str]:
    """Where the link stands, and why not further."""
    lines = []
    if (status := one.status) is not None:
        lag = status.lag
        of = "" if status.newest is None else f" of {status.newest}"
        at = "not known" if status.at is None else f"version {status.at}{of}"
        behind = "not known" if lag is None or lag.messages is None else f"{counted(lag.messages, 'message')} behind"
        lines.append(f"    {status.state.value}, at {at}, {behind}" + (f": {status.reason}" if status.reason else ""))
    if (cursor := one.cursor) is not None:
        lines.append(f"    cursor: version {cursor.version} of {one.source}, {_made(cursor.source)}")
        if cursor.brought is not None:
            lines.append(f"    held by {one.target} since its version {cursor.brought.version}, {_made(cursor.brought)}")
        lines.append(f"    runner: {cursor.owner}")
    return lines


def _made(one: CommitAt | None) -> str:
    if one is None:
        return "whose commit is gone (log cleanup), or cannot be read"
    return f"commit {one.commit_id}, made by {one.by}" + ("" if one.at is None else f" at {one.at:%Y-%m-%d %H:%M:%S}Z")
