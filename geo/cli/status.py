"""`geo status`: all regions at once, worst first."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from geo.asking import Late
from geo.cli.arguments import Verbs, add_engine, add_glob, add_limits, add_watch
from geo.cli.findings import finding_as_json, problem_lines, process_as_json
from geo.cli.output import Colour, Line, Output, said, table_lines
from geo.cli.running import LookedAt
from geo.config import load
from geo.coordination.claims import Liveness
from geo.errors import UsageError
from geo.ops.backlog import Backlog, Trend
from geo.ops.metrics.exposition import text
from geo.ops.metrics.status_metrics import status_metrics
from geo.ops.named import chosen
from geo.ops.problems import Problem
from geo.ops.regions import OF_ALL
from geo.ops.status import (
    ClusterLine,
    IfLost,
    LinkLine,
    OfVersions,
    Status,
    StatusFacts,
    SubscriptionFacts,
    SubscriptionsLine,
    status_of,
)
from geo.ops.status_facts import read_facts
from geo.text import counted, lasting, per_second
from geo.times import from_us, shown_time
from geo.version import program_version


def add_status(verbs: Verbs, does: str) -> None:
    p = verbs.add("status", does, status)
    add_glob(p)
    add_engine(p)
    add_limits(p)
    add_watch(p)
    does = "also write what was found as metrics of Prometheus (docs/metrics.md), at once in the place of the file"
    p.add_argument("--metrics-file", type=Path, metavar="FILE", help=does)


def status(args: argparse.Namespace, output: Output) -> int:
    config, late = load(args.config), Late()
    if args.metrics_file is not None and not args.metrics_file.parent.is_dir():
        raise UsageError(f"--metrics-file {args.metrics_file}: there is no folder {args.metrics_file.parent}; make it first")

    def show() -> int:
        looked = LookedAt("geo status", config, args.engine, picture=OF_ALL, late=late)
        facts = read_facts(looked.regions, config, chosen(looked.regions, args.topic))
        found = status_of(facts, args.max_lag)
        if args.metrics_file is not None:
            _write_metrics(args.metrics_file, facts, found)
        output.data(as_json(found, args.config))
        output.lines(screen(found, program_version(), output.width, args.config))
        return int(found.fails(args.fail_on))

    return output.watch(args.watch, show)


def _write_metrics(file: Path, facts: StatusFacts, found: Status) -> None:
    """Puts the metrics in the place of the file at once, so that who reads it meanwhile has all of a look. Raises UsageError where it cannot be."""
    new = file.with_name(f".{file.name}.new")
    try:
        new.write_text(text(status_metrics(facts, found, program_version())), encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise UsageError(f"--metrics-file {file}: cannot be written: {error.strerror or error}") from error


def as_json(found: Status, config: str) -> dict[str, Any]:
    """With the keys that stay, and verbs as they are typed for a configuration. None: nobody knows."""
    return {
        "at": from_us(found.at_us),
        "version": program_version(),
        "problems": [_problem_as_json(one, found.at_us, config) for one in found.problems],
        "clusters": [_cluster_as_json(one) for one in found.clusters],
        "links": [_link_as_json(one) for one in found.links],
        "subscriptions": {
            "count": found.subscriptions.count,
            "unknown": found.subscriptions.unknown,
            "of_versions": found.subscriptions.versions,
            "versions_behind": [
                {"topic": one.topic, "subscription": one.name, "cluster": one.region, "backlog_versions": one.backlog}
                for one in found.subscriptions.versions_behind
            ],
            "versions_unknown": found.subscriptions.versions_unknown,
            "behind": [
                {"topic": one.topic, "subscription": one.name, "cluster": one.region, "backlog": one.backlog}
                for one in found.subscriptions.behind
            ],
            "failover": [
                {"link": f"{one.source}->{one.target}", "repeated": one.repeats, "skipped": one.skips}
                for one in found.subscriptions.failovers
            ],
        },
    }


def _problem_as_json(one: Problem, now_us: int, config: str) -> dict[str, Any]:
    first = one.first
    where = {"link": first.link, "subject": first.subject, "topic": first.topic}
    return {**finding_as_json(first, now_us, config), **where, "topics": one.count, "of_topics": one.of}


def _cluster_as_json(one: ClusterLine) -> dict[str, Any]:
    facts, lost = one.facts, one.lost
    return {
        "cluster": facts.cluster, "cannot_be_read": facts.unreadable and str(facts.unreadable), "brokers": list(map(process_as_json, facts.brokers)),
        "topics": len(facts.topics), "published_per_second": facts.published,
        "lost": {**said(lost.backlog), "acknowledgements_seconds": lost.acks.seconds, "topics_in_no_other": lost.alone},
        "verified": facts.verified,
    }  # fmt: skip


def _link_as_json(one: LinkLine) -> dict[str, Any]:
    trend = None if one.trend is Trend.UNKNOWN else one.trend
    return {
        "link": one.link,
        "topics": one.topics,
        "states": one.states,
        "lag": one.backlog,
        "lag_before": one.before,
        "trend": trend,
    }


def screen(found: Status, version: str, width: int | None, config: str) -> Iterator[Line]:
    """The screen for a terminal of that width (None: there is none), with verbs as they are typed for a configuration."""
    count = len(found.problems)
    told = counted(count, "problem") if count else "no problem"
    stamp = f"{shown_time(from_us(found.at_us))}  geo {version}".rstrip()
    colour = Colour.GOOD if not count else Colour.BAD if found.fails("error") else Colour.WARNS
    yield Line(f"{told}{stamp.rjust(max((width or 100) - len(told), len(stamp) + 2))}", colour)
    for problem in found.problems:
        yield from problem_lines(problem, found.at_us, config)
    rows = [_cluster(one, found.at_us) for one in found.clusters]
    yield from table_lines(("CLUSTER", "BROKER", "ALIVE", "PUBLISHED/s", "IF LOST NOW", "VERIFIED"), rows, width)
    head = ("LINK", "TOPICS", "RUNNING", "STOPPED", "PAUSED", "DELAYED", "FAILED", "LAG messages", "oldest", "5 min ago", "TREND")
    yield from table_lines(head, [_link(one) for one in found.links], width)
    yield Line(_subscriptions(found.subscriptions))


def _age(seconds: float) -> str:
    return lasting(max(0.0, seconds))


def _cluster(one: ClusterLine, now_us: int) -> tuple[object, ...]:
    facts, lost = one.facts, one.lost
    if facts.unreadable is not None:
        return facts.cluster, "unknown", "unknown", "unknown", "unknown", "unknown"
    living = [each for each in facts.brokers if not each.holder.is_dead]
    shown = min(living or facts.brokers, key=lambda each: each.holder.silent_s, default=None)
    more = f" +{len(living) - 1}" if len(living) > 1 else ""
    if shown is None:
        who, alive = "none", ""
    elif shown.holder.is_dead:
        who, alive = shown.name, "dead" + ("" if shown.holder.last_us is None else f", {_age(shown.holder.silent_s)} ago")
    else:
        does = "" if shown.does == "broker" else f" ({shown.does})"
        is_halted = shown.holder.liveness is Liveness.HALTED
        who, alive = f"{shown.name}{does}{more}", "halted" if is_halted else f"{_age(shown.holder.silent_s)} ago"
    published = "unknown" if facts.published is None else per_second(facts.published)
    verified = "never, as far as is known"
    if facts.verified is not None:
        verified = f"{facts.verified.what}, {_age((now_us - facts.verified.at_us) / 1e6)} ago"
    if not facts.topics:
        return facts.cluster, who, alive, published, "nothing: it has no topic", verified
    return facts.cluster, who, alive, published, _lost(lost), verified


def _lost(one: IfLost) -> str:
    backlog, acks = one.backlog, one.acks
    if backlog.messages is None:
        told = "unknown"
    else:
        least = "" if backlog.complete else "at least "
        age = "of unknown age" if backlog.seconds is None else f"up to {_age(backlog.seconds)}" if backlog.messages else "0 s"
        told = f"{least}{counted(backlog.messages, 'message')}, {age}"
    if not acks.is_nothing and told != "unknown":
        age = "of unknown age" if acks.seconds is None else f"of {_age(acks.seconds)}"
        told += f"; acknowledgements {age} come again"
    if one.alone:
        told += f"; all of {counted(one.alone, 'topic')} that no link carries"
    return told


def _link(one: LinkLine) -> tuple[object, ...]:
    if not one.states and one.backlog.messages is None:
        return one.link, *("unknown",) * 6, "unknown", "", "", "?"
    states = [one.states.get(state, 0) for state in ("RUNNING", "STOPPED", "PAUSED", "DELAYED", "FAILED")]
    oldest = "unknown" if one.backlog.seconds is None else _age(one.backlog.seconds) if one.backlog.seconds else ""
    rests = one.trend is Trend.REST and (one.before is None or not one.before.complete)
    before = "" if rests else "unknown" if one.before is None else _messages(one.before)
    return one.link, f"{one.topics:,}", *states, _messages(one.backlog), oldest, before, one.trend.value


def _messages(one: Backlog) -> str:
    if one.messages is None:
        return "unknown"
    return f"{one.messages:,}" if one.complete else f">{one.messages:,}"


def _subscriptions(one: SubscriptionsLine) -> str:
    told = f"SUBSCRIPTIONS {one.count:,}{_behind(one.behind, 'message', one.unknown)}"
    of_versions = f"{one.versions:,} of versions{_behind(one.versions_behind, 'version', one.versions_unknown)}"
    ways = [
        f"{way.source}->{way.target} would repeat {way.repeats:,}, skip {'?' if way.skips is None else f'{way.skips:,}'}"
        for way in one.failovers
    ]
    return "; ".join((told, *([of_versions] if one.versions else []), *(["failover " + ", ".join(ways)] if ways else [])))


def _behind(found: Sequence[SubscriptionFacts | OfVersions], what: str, unknown: int) -> str:
    """Counts those that are behind, and names the one that is furthest; and of how many nobody knows."""
    told = ""
    if found:
        worst = found[0]
        told = f", behind {len(found):,}: {worst.topic} {worst.name} {counted(worst.backlog or 0, what)} in {worst.region}"
    return f"{told}, backlog of {unknown:,} unknown" if unknown else told
