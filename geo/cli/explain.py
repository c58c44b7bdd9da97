"""`geo explain`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from geo.cli.arguments import TOPIC_FORM, Verbs, add_engine
from geo.cli.events import cells_of, fields_of
from geo.cli.findings import finding_as_json, lag_as_json, since
from geo.cli.output import Line, Output
from geo.cli.running import LookedAt
from geo.cli.verbs import typed
from geo.config import load
from geo.journal.event_rate import Event
from geo.names import Topic
from geo.now import now_us
from geo.ops.explain_facts import CommitAt, Explained, Then, events_of, explain
from geo.ops.health import Health
from geo.ops.named import Named
from geo.ops.regions import OF_ALL
from geo.replication.lag import Lag
from geo.text import counted
from geo.times import from_us, shown_time


def add_explain(verbs: Verbs, does: str) -> None:
    p = verbs.add("explain", does, say)
    p.add_argument("topic", metavar="TOPIC", help=f"{TOPIC_FORM}; a partitioned topic: all its partitions")
    add_engine(p)


def say(args: argparse.Namespace, output: Output) -> int:
    config, topic = load(args.config), Topic.parse(args.topic)
    looked = LookedAt("geo explain", config, args.engine, picture=OF_ALL)
    named = Named(looked.regions, topic)
    topics = named.require()
    explained, noted = looked.regions.within(
        "explain", lambda: (explain(looked.clusters, config, topics, named.glob), events_of(looked.clusters, topics))
    )
    found = [(one, explained[one], noted[one]) for one in topics]
    now = now_us()
    output.data([
        {"topic": str(one), "links": [_as_json(way, now, args.config) for way in ways], "events": [fields_of(event, args.config) for event in events]}
        for one, ways, events in found
    ])  # fmt: skip
    for one, ways, events in found:
        told = [str(one), *(line for way in ways for line in lines(way, now, args.config)), *event_lines(events, args.config)]
        output.lines(map(Line, told))
    return int(any(way.is_problem(now) for _, ways, _ in found for way in ways))


def event_lines(events: Sequence[Event], config: str) -> list[str]:
    """The last events of a topic, with verbs as they are typed for a configuration."""
    return [f"  {'  '.join(cell for cell in cells_of(one, config) if cell)}" for one in events]


def _as_json(one: Explained, now_us: int, config: str) -> dict[str, Any]:
    decision, status, cursor, messages = one.decision, one.status, one.cursor, one.messages
    return {
        "link": f"{one.source}->{one.target}", "replicated": decision.replicated,
        "decision": {"set_by": decision.level, "where": decision.where, "reason": typed(decision.reason, config), "do": decision.do and typed(decision.do, config)},
        "cannot_be_read": one.unread,
        "newest_messages": None if messages.since_us is None else {"for_target": messages.to_target, "for_others": messages.to_others},
        "state": status and status.state.value, "reason": status and status.reason and typed(status.reason, config),
        "source_version": status and status.at, "source_newest": status and status.newest, "in_sync": status and status.in_sync,
        **lag_as_json(None if status is None else status.lag, "lag_"),
        "finding": one.finding and finding_as_json(one.finding, now_us, config),
        "history_since": None if one.history_since_us is None else from_us(one.history_since_us),
        "history": [_then(then) for then in one.history],
        "cursor": None if cursor is None else {
            "version": cursor.version, "source_commit": cursor.source, "target_commit": cursor.target, "owner": cursor.owner,
        },
    }  # fmt: skip


def _then(one: Then) -> dict[str, Any]:
    return {"ago_seconds": one.minutes_ago * 60, **lag_as_json(one.lag)}


def lines(one: Explained, now_us: int, config: str) -> list[str]:
    """One way of a topic, as people read it, with verbs as they are typed for a configuration."""
    decision, messages = one.decision, one.messages
    is_so = {True: "replicated", False: "not replicated", None: "not known"}[decision.replicated]
    by = decision.where if decision.level is None else f"{decision.level.value}, {decision.where}"
    said = [f"{one.source}->{one.target}: {is_so}: {decision.reason} ({by})"]
    if decision.do is not None:
        said.append(f"    to change that: {typed(decision.do, config)}")
    if one.unread is not None:
        said.append(f"    {one.target} cannot be read: {one.unread}")
    if decision.replicated and messages.to_others:
        all_of = messages.to_others + messages.to_target
        said.append(
            f"    of the newest {counted(all_of, 'message')} {messages.to_others:,} are not for {one.target} (replicate_to)"
        )
    return [f"  {line}" for line in (*said, *_standing(one, now_us, config))]


def _standing(one: Explained, now_us: int, config: str) -> list[str]:
    """Tells where the link stands, why not further, and how that was."""
    said = []
    if (status := one.status) is not None:
        of = "" if status.newest is None else f" of {status.newest}"
        at = "nobody knows where" if status.at is None else f"version {status.at}{of}"
        is_told = one.finding is not None and one.finding.health is not Health.OK
        why = f": {typed(status.reason, config)}" if status.reason and not is_told else ""
        said.append(f"    {status.state.value}, at {at}, {_behind(status.lag)}{why}")
    if (finding := one.finding) is not None and finding.health is not Health.OK:
        when = since(finding.since_us, now_us)
        code = "" if finding.code is None else f": {finding.code.value}"
        said.append(
            f"    {finding.health.value}{'' if when is None else f' since {when}'}{code}{finding.reason and f': {typed(finding.reason, config)}'}"
        )
        said += [] if finding.do is None else [f"      do: {typed(finding.do, config)}"]
    if (cursor := one.cursor) is not None:
        said.append(f"    cursor: version {cursor.version} of {one.source}, {_made(cursor.source)}")
        if cursor.target is not None:
            said.append(f"    held by {one.target} since its version {cursor.target.version}, {_made(cursor.target)}")
        said.append(f"    runner: {cursor.owner}")
    if one.history:
        then = ", ".join(f"{_when(each.minutes_ago)} {_shortly(each)}" for each in one.history)
        tells = "" if one.history_since_us is None else f" (both logs tell of it since {since(one.history_since_us, now_us)})"
        said.append(f"    lag in messages: {then}{tells}")
    return said


def _behind(lag: Lag | None) -> str:
    if lag is None or lag.messages is None:
        return "nobody knows how far behind"
    return f"{'' if lag.complete else 'at least '}{counted(lag.messages, 'message')} behind"


def _when(minutes_ago: int) -> str:
    return f"{minutes_ago} min ago" if minutes_ago else "now"


def _shortly(one: Then) -> str:
    lag = one.lag
    if lag is None or lag.messages is None:
        return "?"
    return f"{'' if lag.complete else '>'}{lag.messages:,}"


def _made(one: CommitAt | None) -> str:
    if one is None:
        return "whose commit is gone (log cleanup), or cannot be read"
    return f"commit {one.commit_id}, made by {one.by}" + ("" if one.at is None else f" at {shown_time(one.at)}")
