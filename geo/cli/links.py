"""`geo reconcile`, `geo links …`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from geo.asking import Late
from geo.cli.arguments import (
    A_TIME,
    Verbs,
    add_dry_run,
    add_engine,
    add_glob,
    add_limits,
    add_take_over,
    add_watch,
    shown_start,
)
from geo.cli.arguments import start as parse_start
from geo.cli.findings import finding_as_json, lag_as_json, problem_lines, since
from geo.cli.output import Output
from geo.cli.running import (
    LookedAt,
    before_change,
    say_unreadable,
    start_spark,
    starting,
)
from geo.cli.verbs import typed
from geo.config import load
from geo.config.model import Config
from geo.delta.driver import Reads
from geo.errors import UsageError
from geo.faults import Tried, faults_here
from geo.journal.cluster import ClusterTables, connect
from geo.late import late
from geo.log.housekeeping import open_for_writing
from geo.names import Topic, check_topic_glob, glob_of, is_glob, nearest_topic, topic_glob_matches
from geo.now import now_us
from geo.ops.health import Finding, limited
from geo.ops.link_health import link_findings
from geo.ops.named import chosen
from geo.ops.problems import fails, grouped
from geo.ops.regions import OF_LINKS
from geo.replication.carried import topics_of_source
from geo.replication.lag import Lag
from geo.replication.link_requests import Action, Requests
from geo.replication.link_state import LinkState
from geo.replication.link_status import HighWatermarks, LinkStatus, high_watermarks, link_statuses, told_state
from geo.replication.link_table import read_links
from geo.replication.request_table import ask, read_requests
from geo.streams import timetable
from geo.streams.life import State
from geo.text import counted, first_line

if TYPE_CHECKING:
    from geo.replication import repair
else:  # who looks does without Spark
    repair = late("geo.replication.repair")


def add_reconcile(verbs: Verbs, does: str) -> None:
    p = verbs.add("reconcile", does, reconcile)
    _add_link(p)
    p.set_defaults(to=None)


def add_links(verbs: Verbs, does: str) -> None:
    of_links = verbs.add_noun("links", does)
    p = of_links.add("list", "list the links of every cluster with their states", list_links)
    add_glob(p)
    add_engine(p)
    p = of_links.add(
        "status", "how every link is doing and how far it is behind its source, whether or not it runs", links_status
    )
    add_glob(p)
    add_engine(p)
    add_limits(p)
    add_watch(p)
    for action, does in _ASKED.items():
        p = of_links.add(action.value, does, ask_links)
        p.set_defaults(action=action)
        _add_ends(p)
        add_glob(p)
    p = of_links.add("resolve", "reconcile all FAILED topics of a link: takes their sources as right", resolve)
    _add_ends(p)
    add_glob(p)
    does = "where a column has another type, or case, than in the target: bring its values as the target's type if they are exactly that"
    p.add_argument("--accept-type", action="store_true", help=does)
    add_dry_run(p)
    add_take_over(p)
    does = "let a link begin again at a time; what is before is not fetched any more, what is there stays"
    p = of_links.add("reset", does, reconcile)
    _add_link(p)
    p.add_argument("--to", required=True, type=parse_start, metavar="earliest|latest|TIME", help=f"TIME as {A_TIME}")


_ASKED = {
    Action.PAUSE: f"let a link rest, also over restarts; whoever runs it follows within {timetable.DISCOVERY_S:.0f} seconds ({timetable.REMOTE_FOLLOWS_S:.0f} on an object store)",
    Action.RESUME: "let a paused link go on from where it stands",
    Action.RESTART: "let whoever runs a link end and begin it anew, also what is FAILED or waits to be tried again",
}


def _add_ends(p: argparse.ArgumentParser) -> None:
    p.add_argument("--source", required=True, help="the cluster that the link reads")
    p.add_argument("--target", required=True, help="the cluster that it writes, and that runs it")


def _add_link(p: argparse.ArgumentParser) -> None:
    _add_ends(p)
    p.add_argument("--topic", required=True, metavar="GLOB")
    add_dry_run(p)
    add_take_over(p)


def reconcile(args: argparse.Namespace, output: Output) -> int:
    """Also what a link that is reset does, which begins at a place that is given."""
    config = load(args.config)
    link, there = config.link(args.source, args.target), before_change("geo reconcile", config, args.target).clusters
    repair.carried_topics(config, link, there[args.source], there[args.target], check_topic_glob(args.topic))
    done = repair.reconcile_links(
        start_spark("geo reconcile" if args.to is None else "geo links reset", config),
        config,
        args.source,
        args.target,
        topics=check_topic_glob(args.topic),
        start=args.to,
        dry_run=args.dry_run,
        take_over=args.take_over,
        accept_impossible=args.to is None,
    )
    _say_reconciled(args, output, done, begins="" if args.to is None else f"begins at {shown_start(args.to)}, ")
    return 0


def _say_reconciled(
    args: argparse.Namespace,
    output: Output,
    done: Sequence[repair.Reconciled],
    not_done: Mapping[str, str] = MappingProxyType({}),
    begins: str = "",
) -> None:
    """`not_done`: why, by topic."""
    link = f"{args.source}->{args.target}"
    output.data([
        *({"link": r.link, "topic": r.topic, "missing": r.missing, "appended": r.appended, "source_version": r.source_version,
           "impossible": r.impossible, "impossible_not_accepted": r.not_accepted, "dry_run": args.dry_run, "beside": r.beside} for r in done),
        *({"link": link, "topic": topic, "not_resolved": why} for topic, why in not_done.items()),
    ])  # fmt: skip
    for r in done:
        missing, appended = counted(r.missing, "message"), counted(r.appended, "missing message")
        what = f"{missing} missing, nothing written" if args.dry_run else f"{appended} appended"
        output.text(f"{r.link} {r.topic}: {begins}{what}, compared with version {r.source_version} of the source")
        if r.impossible:
            ends = f"--source {args.source} --target {args.target} --topic {r.topic}"
            accepts = f"; nobody has accepted {r.not_accepted:,} of them, as geo reconcile {ends} does" if r.not_accepted else ""
            output.text(f"  {_left_out(r.impossible, is_accepted=not r.not_accepted)}{accepts}")
        if r.beside:
            output.text(f"  {r.beside}")
    output.text(*(f"{link} {topic}: not resolved: {why}" for topic, why in not_done.items()))


def _left_out(impossible: int, *, is_accepted: bool) -> str:
    return (
        f"{counted(impossible, 'row')} left out that no producer can have written{', which was accepted' if is_accepted else ''}"
    )


def links_status(args: argparse.Namespace, output: Output) -> int:
    config, late = load(args.config), Late()
    return output.watch(args.watch, lambda: _show_status(args, output, config, late))


def _show_status(args: argparse.Namespace, output: Output, config: Config, late: Late) -> int:
    looked = LookedAt("geo links", config, args.engine, picture=OF_LINKS, late=late)
    glob = chosen(looked.regions, args.topic)
    each, unreadable = looked.read_each(lambda tables: link_findings(tables, looked.clusters, config, glob))
    now = now_us()
    judged = ((one, _limited(one.lag, how, now, args.max_lag)) for one, how, _ in each)
    found = sorted(judged, key=lambda both: (both[1].health.rank, *_name(both[0])))
    away = [link for one in unreadable for link in config.inbound(one["cluster"])]
    statuses = [one for one, _ in found]
    every, of_in_sync = high_watermarks(statuses, away, in_sync=False), high_watermarks(statuses, away, in_sync=True)
    rows = [
        {**_status(one, every, of_in_sync, args.config), "finding": finding_as_json(how, now, args.config)} for one, how in found
    ]
    output.data([*sorted(rows, key=lambda row: (row["topic"], row["link"])), *unreadable])
    head = ("TOPIC", "LINK", "HEALTH", "SINCE", "STATE", "IN SYNC", "LAG", "BYTES", "SECONDS", "VERSION", "OF", "REASON")
    output.table(
        head,
        [
            (one.topic, one.link.name, how.health.value, since(how.since_us, now), one.state.value, "yes" if one.in_sync else "no",
             *_lag(one.lag), one.at, one.newest, _reason(one))
            for one, how in found
        ],
    )  # fmt: skip
    problems = grouped((how for _, how in found), now)
    for problem in problems:
        output.text("")
        output.lines(problem_lines(problem, now, args.config))
    return say_unreadable(output, unreadable) or int(fails((one.level for one in problems), args.fail_on))


def _name(one: LinkStatus) -> tuple[str, str]:
    return str(one.topic), one.link.name


def _limited(lag: Lag | None, how: Finding, now_us: int, max_lag_s: float | None) -> Finding:
    return limited(how, None if lag is None else lag.seconds, now_us, max_lag_s, complete=lag is not None and lag.complete)


def _reason(one: LinkStatus) -> str | None:
    """Tells why it is not running, and what it left out."""
    told = [] if one.reason is None else [one.reason]
    if one.impossible is None and one.at is not None:
        told.append("how many rows it left out that no producer can have written is unknown; its next start counts them")
    if one.impossible:
        told.append(_left_out(one.impossible, is_accepted=not one.not_accepted))
    if one.expired:
        told.append(f"{counted(one.expired, 'message')} left out that had expired")
    return "; ".join(told) or None


def _lag(lag: Lag | None) -> tuple[str, ...]:
    """Messages, bytes and seconds as people read them; `?` where nobody knows."""
    if lag is None:
        return "?", "?", "?"
    more = "" if lag.complete else ">"
    counts = ("?" if count is None else f"{more}{count:,}" for count in (lag.messages, lag.bytes))
    return *counts, "?" if lag.seconds is None else f"{more}{lag.seconds:,.1f}"


def _status(one: LinkStatus, every: HighWatermarks, of_in_sync: HighWatermarks, config: str) -> dict[str, Any]:
    lag, key = one.lag, (one.link.source, one.topic)
    return {
        "link": one.link.name, "topic": str(one.topic), "state": one.state.value, "reason": one.reason and typed(one.reason, config),
        "source_version": one.at, "source_newest": one.newest, "in_sync": one.in_sync,
        **lag_as_json(lag, "lag_"),
        "expired": one.expired, "impossible": one.impossible,
        "high_watermark": every[key], "high_watermark_in_sync": of_in_sync[key], "lacks": one.lacks,
    }  # fmt: skip


def ask_links(args: argparse.Namespace, output: Output) -> int:
    config = load(args.config)
    link, topics, action = config.link(args.source, args.target), check_topic_glob(args.topic), args.action
    target = open_for_writing(connect(starting("geo links", config), config.cluster(args.target), reads=Reads.ALL), config)
    known = set[Topic]()
    with Tried():  # whoever cannot read what the link has replicated may pause it all the same
        known = {Topic.parse(topic) for source, topic in read_links(target) if source == args.source}
    topics = glob_of(topics, known)
    if is_meant := is_glob(topics) or Topic.parse(topics) in known:
        ask(target, args.source, topics, action)  # before the source is looked at, which may take long to say that it is away
    try:
        registered = topics_of_source(target.beside(config.cluster(args.source)), sorted(known))
    except faults_here() as error:
        matching, matches = None, f"nobody knows what, since {args.source} cannot be read ({first_line(error)})"
    else:
        there = {one.topic for one in registered if not one.is_deleted}
        topics = glob_of(topics, there | known)
        if not is_glob(topics) and Topic.parse(topics) not in there | known:
            listed = f"`geo topics` lists those that are there{nearest_topic(Topic.parse(topics), there)}"
            raise UsageError(f"{args.source} has no topic {topics}. {listed}")
        matching = sum(topic_glob_matches(topics, one) for one in there)
        matches = f"{counted(matching, 'topic')} of {args.source} now"
    if not is_meant:
        ask(target, args.source, topics, action)
    output.data({"link": link.name, "topics": topics, "action": action.value, "matching": matching})
    output.text(
        f"{link.name} {topics}: asked to {action.value}; it matches {matches}. Whoever runs the link follows within "
        f"{timetable.DISCOVERY_S if target.is_near else timetable.REMOTE_FOLLOWS_S:.0f} seconds{'' if action is Action.RESTART else ', or at its next start'}."
    )
    return 0


def resolve(args: argparse.Namespace, output: Output) -> int:
    repair.refuse_rehearsed_types(dry_run=args.dry_run, accept_type=args.accept_type)
    config = load(args.config)
    link, topics = config.link(args.source, args.target), check_topic_glob(args.topic)
    there = before_change("geo links resolve", config, args.target).clusters[args.target]
    if not repair.failed_topics(there, args.source, topics):
        output.data([])
        output.text(f"{link.name}: no topic that matches {topics} is FAILED")
        return 0
    done, not_done = repair.resolve_links(
        start_spark("geo links resolve", config),
        config,
        args.source,
        args.target,
        topics,
        dry_run=args.dry_run,
        take_over=args.take_over,
        accept_type=args.accept_type,
    )
    _say_reconciled(args, output, done, not_done)
    return 1 if not_done else 0


def list_links(args: argparse.Namespace, output: Output) -> int:
    config = load(args.config)
    looked = LookedAt("geo links", config, args.engine, picture=OF_LINKS)
    glob = chosen(looked.regions, args.topic)

    def rows(tables: ClusterTables) -> list[tuple[dict[str, Any], Lag | None]]:
        requests = read_requests(tables)
        lags = {(one.link.source, str(one.topic)): one.lag for one in link_statuses(tables, looked.clusters, config, glob)}
        return [
            ({"link": f"{source}->{tables.cluster.name}", "topic": topic, **_told(state, requests, args.config),
              "source_version": state.cursor.version if state.cursor else None, "floors": state.floors, "expired": state.expired,
              **lag_as_json(lag := lags.get((source, topic)), "lag_")}, lag)
            for (source, topic), state in read_links(tables).items()
            if topic_glob_matches(glob, Topic.parse(topic))
        ]  # fmt: skip

    found, unreadable = looked.read_each(rows)
    found.sort(key=lambda one: (one[0]["topic"], one[0]["link"]))
    output.data([*(row for row, _ in found), *unreadable])
    output.table(
        ("TOPIC", "LINK", "STATE", "SOURCE VERSION", "LAG", "SECONDS", "REASON"),
        [(r["topic"], r["link"], r["state"], r["source_version"], *_lag(lag)[::2], r["reason"]) for r, lag in found],
    )
    return say_unreadable(output, unreadable) or int(any(row["state"] == State.FAILED.value for row, _ in found))


def _told(row: LinkState, requests: Requests, config: str) -> dict[str, str | None]:
    state, reason = told_state(row, requests, row.source, Topic.parse(row.topic))
    return {"state": state.value, "reason": reason and typed(reason, config)}
