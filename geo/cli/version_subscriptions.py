"""Verbs `geo subscriptions …` and `geo failover` for version subscriptions: consumers that only know versions of a topic's log."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from geo.cli.output import Output
from geo.cli.running import run_in_cluster, writable
from geo.config import Config
from geo.delta.table import Table
from geo.journal.cluster import ClusterTables
from geo.late import late
from geo.names import Topic
from geo.subscription.versions import version_subscriptions as changes
from geo.subscription.versions.version_reader import WHY, query, stream_code
from geo.subscription.versions.version_status import StartElsewhere, VersionStanding
from geo.subscription.versions.version_subscriptions import VersionSubscription
from geo.text import counted

if TYPE_CHECKING:
    from geo.subscription.pip33 import version_sync
else:  # who looks does without Spark
    version_sync = late("geo.subscription.pip33.version_sync")

log = logging.getLogger(__name__)


def add_mode(p: argparse.ArgumentParser) -> None:
    """`--mode` and `--checkpoint` of `geo subscriptions create`."""
    does = (
        "what its consumer acknowledges: messages, or versions of the topic's log as a Delta stream, a dbt model or a SQL job does "
        "(default: %(default)s)"
    )
    p.add_argument("--mode", choices=("messages", "version"), default="messages", help=does)
    does = "with --mode version: the checkpoint folder of its streaming query, which says how far it is (default: geo subscriptions ack)"
    p.add_argument("--checkpoint", metavar="DIR", help=does)


def version(text: str) -> int:
    """The type of a version of a table."""
    if not (text.isascii() and text.isdigit()) or int(text) >= 2**63:
        raise argparse.ArgumentTypeError("a version of a table, from 0")
    return int(text)


def create(args: argparse.Namespace, output: Output, config: Config, topic: Topic) -> int:
    tables = writable(args, config, "geo subscriptions")
    asked, there = args.replicate_subscription_state, changes.version_subscription(tables, topic, args.subscription)
    replicated = config.replicates_subscriptions(topic) if asked is None and there is None else asked
    made = changes.create(tables, topic, args.subscription, args.checkpoint, replicated=replicated)
    log_of_topic = tables.log(topic)
    view = changes.make_view(tables, topic)
    stream, sql = _stream(log_of_topic), f"SELECT * FROM {view}" if view else query(log_of_topic.sql)
    output.data({**listed(tables, made), "stream": stream, "sql": sql})
    way = f"geo subscriptions ack --cluster {args.cluster} --topic {topic} --subscription {args.subscription} --version V"
    how = f"by the checkpoint {made.checkpoint}" if made.checkpoint else f"by what is said with: {way}"
    output.text(f"{made} in {args.cluster} goes {how}", "a stream of its messages:", f"  {stream}", f"in SQL: {sql}", WHY)
    if not made.replicated:
        output.text(f"it is of {args.cluster} only: no markers are written for it, and it does not move")
    return 0


def set_replicated(tables: ClusterTables, topic: Topic, name: str, output: Output, *, replicated: bool) -> int:
    is_changed, cluster = changes.switch(tables, topic, name, replicated=replicated), tables.cluster.name
    named = {"topic": str(topic), "subscription": name, "cluster": cluster, "mode": "version"}
    output.data({**named, "replicated": replicated, "changed": is_changed})
    of = f"version subscription {name} of {topic}"
    if not is_changed:
        output.text(f"{of} in {cluster} is so already; nothing was written")
    elif replicated:
        output.text(f"where {of} may go on elsewhere is found out from here on, once {cluster} runs version sync")
    else:
        output.text(
            f"{of} is of {cluster} only from here on: no markers are written for it; what the others were told stays there"
        )
    return 0


def _stream(topic_log: Table, start: int | None = None) -> str:
    return stream_code(topic_log.name, by_path=topic_log.by_path, start=start)


def ack(args: argparse.Namespace, output: Output, config: Config, topic: Topic) -> int:
    tables = writable(args, config, "geo subscriptions")
    now = changes.finish(tables, topic, args.subscription, args.version)
    output.data(listed(tables, now))
    output.text(f"{now} in {args.cluster} has finished version {now.finished}")
    return 0


def sync(args: argparse.Namespace, output: Output) -> int:
    def say(line: str) -> None:
        log.info("%s", line) if output.as_json else output.text(line)

    return run_in_cluster(
        args,
        output,
        "geo subscriptions",
        version_sync.VersionSync,
        lambda done: f"{counted(done.markers, 'marker')} written",
        say=say,
    )


def listed(tables: ClusterTables, one: VersionSubscription) -> dict[str, Any]:
    """The subscription as JSON."""
    named = {"topic": str(one.topic), "subscription": one.subscription, "cluster": tables.cluster.name, "mode": "version"}
    progress = {"finished": one.finished, "checkpoint": one.checkpoint, "table_id": one.table_id}
    return {**named, **progress, "replicated": one.replicated, "backlog_versions": changes.versions_behind(tables, one)}


def columns(one: Mapping[str, Any]) -> tuple[object, ...]:
    """State, whether it is replicated, epoch, what is acknowledged and what is not, of one that is listed."""
    behind = one["backlog_versions"]
    said = "nothing" if one["finished"] is None else f"version {one['finished']}"
    return (
        "versions",
        "yes" if one["replicated"] else "no",
        None,
        said if one["checkpoint"] is None else "by checkpoint",
        "?" if behind is None else counted(behind, "version"),
    )


def say_standings(by_topic: Mapping[Topic, list[VersionStanding]], output: Output) -> int:
    """Say how far a subscription of one topic, or of several partitions, is. Returns the exit code."""
    found = [(topic, one) for topic, standings in by_topic.items() for one in standings]
    output.data([{"mode": "version", "topic": str(topic), **asdict(one)} for topic, one in found])
    said: Topic | None = None
    for topic, one in found:
        if len(by_topic) > 1 and topic != said:
            output.text(str(topic))
            said = topic
        output.text(f"{one.cluster}: {_how_far(one)}")
        _say_not_run(one.cluster, one.not_run, output, "  ")
        _say_waits(one.cluster, one.waits_for, output)
        if one.unread is not None:
            output.text(f"  {one.unread}; whoever runs version sync in {one.cluster} logs why")
        for reason, count in one.refused.items():
            output.text(f"  {counted(count, 'marker')} refused: {reason}")
        if one.start_here is not None:
            output.text(f"  here: a consumer may begin at version {one.start_here}, as {one.told_by} told{_old(one.age_s)}")
        for start in one.elsewhere:
            output.text(f"  in {start.target}: {_begins(start)}")
            _say_not_run(start.target, start.not_run.get(start.target), output, "    ")
            _say_counts(start, output, "    ")
    return 1 if any(one.unreadable is not None for _, one in found) else 0


def _how_far(one: VersionStanding) -> str:
    if one.unreadable is not None:
        return f"cannot be read: {one.unreadable}"
    if not one.known:
        return "no consumer of versions"
    if one.unfinished_why is not None:
        return one.unfinished_why
    done = "no version yet" if one.finished is None else f"version {one.finished} of {one.newest}"
    only = "" if one.replicated else ", of this region only"
    return f"a consumer of versions, finished {done}" + (", by its checkpoint" if one.checkpoint else "") + only


def as_json(found: StartElsewhere, target: ClusterTables) -> dict[str, Any]:
    stream = None if found.start is None else _stream(target.log(Topic.parse(found.topic)), found.start)
    return {"mode": "version", **asdict(found), "stream": stream}


def say_start(found: StartElsewhere, target: ClusterTables, output: Output, *, is_of_both: bool = False) -> int:
    """Say where a consumer that moves goes on. Returns the exit code: 1, that is not known. `is_of_both`: the name is also that of a
    subscription of messages, which is there under it."""
    if found.source_unreadable is not None:
        output.text(f"{found.source}: {found.source_unreadable}")
    as_one = ", as one of versions" if is_of_both else ""
    output.text(f"{found.subscription} of {found.topic} in {found.target}{as_one}: {_begins(found)}")
    if found.start is None:
        for cluster, why in found.not_run.items():
            _say_not_run(cluster, why, output, "  ")
    _say_waits(found.source, found.waits_for, output)
    _say_counts(found, output, "")
    if found.start is None:
        output.text("a consumer that begins without startingVersion gets all that is there, and skips nothing")
        return 1
    create = (
        f"geo subscriptions create --mode version --cluster {found.target} --topic {found.topic} --subscription "
        + ("ANOTHER-NAME" if is_of_both else found.subscription)
        + (" --checkpoint DIR-OF-THAT-QUERY" if found.checkpoint is not None else "")
    )
    output.text(
        f"start its consumer in {found.target} with startingVersion {found.start}, then: {create}",
        f"  {_stream(target.log(Topic.parse(found.topic)), found.start)}",
        WHY,
    )
    return 0


def _begins(start: StartElsewhere) -> str:
    if start.start is None:
        return f"no start is known: {start.why_not}"
    told = "" if start.told_by == start.source else f", as {start.told_by} told"
    return f"begin at version {start.start}{told}{_old(start.age_s)}"


def _old(age_s: float | None) -> str:
    return "" if age_s is None else f", {age_s:,.1f} s old"


def _say_not_run(cluster: str, why: str | None, output: Output, indent: str) -> None:
    if why is not None:
        verbs = f"geo broker --cluster {cluster}, or geo subscriptions sync --cluster {cluster}"
        output.text(f"{indent}nobody runs version sync in {cluster} ({why}). To run it: {verbs}")


def _say_waits(cluster: str, waits_for: Mapping[str, str] | None, output: Output) -> None:
    for name, why in sorted((waits_for or {}).items()):
        output.text(f"  {cluster} takes no snapshots because of {name}: {why}")


def _say_counts(start: StartElsewhere, output: Output, indent: str) -> None:
    if start.start is None:
        return
    if start.uncounted is not None:
        output.text(f"{indent}not counted in full: {start.uncounted}")
    if start.at_most_repeated is None or start.unseen is None:
        return
    output.text(f"{indent}{counted(start.at_most_repeated, 'message')} at most come again")
    for why, count in start.unseen.items():
        output.text(f"{indent}{counted(count, 'message')} before it not finished in {start.source}: {why}")
    if start.unseen:
        output.text(f"{indent}  {start.unseen_ids}")
