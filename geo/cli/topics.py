"""`geo topics …`, `geo peek`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from geo.cli.agreed import add_yes, require_agreement
from geo.cli.arguments import TOPIC_FORM, Verbs, add_dry_run, add_engine, add_glob, from_1_to
from geo.cli.describe import add_describe
from geo.cli.output import Colour, Line, Output, as_text, said
from geo.cli.running import LookedAt, before_change, load_for, missing_roots, say_unreadable, start_spark, writable
from geo.config import load
from geo.delta.columns import sql_type
from geo.errors import NotThereError
from geo.journal.cluster import ClusterTables
from geo.late import late
from geo.log.partitioned import create_partitions, create_single, grow_topic
from geo.log.topic_log import count_messages, newest
from geo.log.topic_policies import set_replication_clusters
from geo.log.topics import Registered, absent, all_topics
from geo.names import ALL_TOPICS, Topic, is_glob, topic_glob_matches
from geo.now import utc_now
from geo.ops.named import chosen, refuse_absent
from geo.ops.removal import LOSE
from geo.ops.topic_facts import TopicStats, topic_stats
from geo.ops.topic_stats import WINDOWS_S, Rates
from geo.replication.link_table import read_links
from geo.streams.life import State
from geo.text import counted, lasting, per_second
from geo.times import from_us

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

    from geo.log import admission
    from geo.ops import delete_topic
else:  # who looks does without Spark
    admission, delete_topic = late("geo.log.admission"), late("geo.ops.delete_topic")

_AT_ONCE = 4
"""Logs that are looked at side by side: half of the time is reading Delta's log, which holds up no other thread."""


def add_topics(verbs: Verbs, does: str) -> None:
    of_topics = verbs.add_noun("topics", does)
    p = of_topics.add("list", "list the topics of every cluster", list_topics)
    add_glob(p)
    add_engine(p)

    add_describe(of_topics)

    does = "how fast each topic grows in every cluster, how large it is, who writes it and who reads it"
    p = of_topics.add("stats", does, stats)
    add_glob(p)
    add_engine(p)

    p = of_topics.add("create", "create a topic in a cluster, or add partitions; links bring it to the others", create)
    p.add_argument("--cluster", required=True, help="where it is made; links bring it to the others")
    p.add_argument("--topic", required=True, help=TOPIC_FORM)
    count = from_1_to(10_000, "a number of partitions, from 1 to 10000")
    p.add_argument(
        "--partitions", type=count, metavar="N", help="NAME-partition-0 to NAME-partition-N-1; more than before adds some"
    )
    p.add_argument(
        "--columns", metavar="SQL", help="a typed topic's own columns, such as 'amount DECIMAL(10,2), currency STRING'"
    )

    p = of_topics.add(
        "set", "set a topic's policy in a cluster, which goes before the configuration's, or give it columns", set_policy
    )
    p.add_argument("--cluster", required=True, help="out of which it holds")
    p.add_argument("--topic", required=True, help=f"{TOPIC_FORM}; a partitioned topic: all its partitions")
    policy = p.add_mutually_exclusive_group(required=True)
    policy.add_argument("--replication-clusters", metavar="A,B,…", help="only links between these carry it; one alone: none does")
    policy.add_argument("--inherit", action="store_true", help="again as the configuration says")
    does = "give a typed topic these columns behind its own, and its own wider types, such as 'gate STRING'; links bring them to the others"
    policy.add_argument("--add-columns", metavar="SQL", help=does)

    p = of_topics.add("delete", "delete a topic in one cluster, with what hangs on it there; acknowledgements stay", delete)
    p.add_argument("--cluster", required=True, help="where it is deleted")
    p.add_argument("--topic", required=True, metavar="TOPIC|GLOB", help=f"{TOPIC_FORM}; a partitioned topic: all its partitions")
    add_dry_run(p, "say what would go, write nothing")
    p.add_argument(LOSE, action="store_true", dest="lose", help="also messages that no other cluster holds, or may not hold")
    add_yes(p)


def add_peek(verbs: Verbs, does: str) -> None:
    p = verbs.add("peek", does, peek)
    p.add_argument("--cluster", required=True, help="the cluster whose log is looked at")
    p.add_argument("--topic", required=True, help=TOPIC_FORM)
    p.add_argument("-n", type=from_1_to(10_000, "a number from 1 to 10000"), default=5, help="how many (default: %(default)s)")
    p.add_argument("--payload", choices=("text", "hex"), help="show payloads too")
    add_engine(p)


def list_topics(args: argparse.Namespace, output: Output) -> int:
    failed: list[dict[str, Any]] = []
    looked = LookedAt("geo topics", load(args.config), args.engine)
    glob = chosen(looked.regions, args.topic)

    def topics(tables: ClusterTables) -> list[dict[str, Any]]:
        links = read_links(tables)
        there = all_topics(tables, (Topic.parse(topic) for _, topic in links))
        listed = [one for one in there if not one.is_deleted and topic_glob_matches(glob, one.topic)]
        failed.extend(
            {
                "link": f"{source}->{tables.cluster.name}",
                "topic": topic,
                "cluster": tables.cluster.name,
                "reason": state.reason and output.typed(state.reason),
            }
            for (source, topic), state in sorted(links.items())
            if state.state is State.FAILED and topic_glob_matches(glob, Topic.parse(topic))
        )
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(partial(_listed, tables), listed))

    found, unreadable = looked.read_each(topics)
    found.sort(key=lambda row: (row["topic"], row["cluster"]))
    of_topic = {(row["topic"], row["cluster"]): row for row in found}
    for one in failed:
        if (row := of_topic.get((one["topic"], one["cluster"]))) is not None:
            row["failed_links"].append({"link": one["link"], "reason": one["reason"]})
    output.data([*found, *(one for one in failed if (one["topic"], one["cluster"]) not in of_topic), *unreadable])
    if not found and not unreadable and args.topic == ALL_TOPICS:
        output.text("no topics yet: `geo topics create` makes one, and so does `geo publish`")
    rows = [
        (r["topic"], r["cluster"], "typed" if r["typed"] else "bytes", "?" if r["messages"] is None else f"{r['messages']:,}",
         r["version"], "?" if r["is_unclear"] else ",".join(r["replication_clusters"] or ["as configured"]))
        for r in found
    ]  # fmt: skip
    output.table(("TOPIC", "CLUSTER", "KIND", "MESSAGES", "VERSION", "REPLICATION CLUSTERS"), rows)
    output.text(*(f"{r['topic']} in {r['cluster']}: {r['lacks']}" for r in found if r["lacks"] is not None))
    output.lines(Line(f"{r['link']} {r['topic']}: FAILED: {r['reason']}", Colour.BAD) for r in failed)
    output.text(*missing_roots(looked.config))
    return say_unreadable(output, unreadable) or int(bool(failed) or any(r["lacks"] is not None for r in found))


def _listed(tables: ClusterTables, one: Registered) -> dict[str, Any]:
    log = tables.log(one.topic)
    seen = log.snapshot()
    lacks = absent(tables, one, seen)
    return {"topic": str(one.topic), "cluster": tables.cluster.name, "typed": one.typed,
            "created_at": None if one.is_unknown else one.created_at,
            "replication_clusters": one.replication_clusters, "is_unclear": one.is_unclear, "version": seen and seen.version,
            "messages": count_messages(log, seen.version) if seen else None, "lacks": lacks and str(lacks), "failed_links": []}  # fmt: skip


def stats(args: argparse.Namespace, output: Output) -> int:
    looked = LookedAt("geo topics", load(args.config), args.engine)
    glob = chosen(looked.regions, args.topic)
    found, unreadable = looked.read_each(lambda tables: topic_stats(tables, glob))
    found.sort(key=lambda one: (one.topic, one.cluster))
    output.data([*map(_stats_as_json, found), *unreadable])
    output.table(_STATS, [_stats_row(one) for one in found])
    output.text(*(line for one in found if (line := _shorter(one)) is not None))
    now = utc_now()
    producers = [
        (one.topic, one.cluster, of.producer, "runs" if of.runs else "", f"{of.messages:,}", of.ledgers,
         "" if of.last_us is None else lasting((now - from_us(of.last_us)).total_seconds()))
        for one in found for of in one.producers
    ]  # fmt: skip
    subscriptions = [
        (one.topic, one.cluster, of.subscription, of.consumer, _or_unknown(of.backlog))
        for one in found
        for of in one.subscriptions
    ] + [
        (one.topic, one.cluster, name, "versions", "?" if behind is None else counted(behind, "version"))
        for one in found
        for name, behind in one.of_versions.items()
    ]
    for head, rows in ((_PRODUCERS, producers), (_SUBSCRIPTIONS, subscriptions)):
        if rows:
            output.text("")
            output.table(head, rows)
    output.text(*(f"{one.topic} in {one.cluster}: {one.lacks}" for one in found if one.lacks is not None))
    return say_unreadable(output, unreadable) or int(any(one.lacks is not None for one in found))


_STATS = ("TOPIC", "CLUSTER", "MESSAGES", "FILES", "BYTES", "PUBLISHED/s", "MSG/s 1m", "MSG/s 1h", "BYTES/s 1h", "LEDGERS")
_PRODUCERS = ("TOPIC", "CLUSTER", "PRODUCER", "STATE", "MESSAGES", "LEDGERS", "LAST PUBLISHED")
_SUBSCRIPTIONS = ("TOPIC", "CLUSTER", "SUBSCRIPTION", "CONSUMER", "BACKLOG")


def _stats_row(one: TopicStats) -> tuple[object, ...]:
    now, usual = one.rates["1m"], one.rates["1h"]
    sizes = map(_or_unknown, (one.messages, one.files, one.bytes))
    lately = (None, None) if now is None else (now.published, now.messages)
    each = *lately, *((None, None) if usual is None else (usual.messages, usual.bytes))
    return one.topic, one.cluster, *sizes, *("?" if rate is None else per_second(rate) for rate in each), _or_unknown(one.ledgers)


def _shorter(one: TopicStats) -> str | None:
    """Said where rates are not those of a whole hour."""
    usual = one.rates["1h"]
    if usual is None or usual.over_s >= WINDOWS_S["1h"]:
        return None
    return (
        f"{one.topic} in {one.cluster}: rates of an hour are of {lasting(usual.over_s)}: commits of before are gone, or too many"
    )


def _or_unknown(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _stats_as_json(one: TopicStats) -> dict[str, Any]:
    rates = {name: rate and _rates_as_json(rate) for name, rate in one.rates.items()}
    return {**said(one), "rates": rates, "subscriptions": one.subscriptions}


def _rates_as_json(one: Rates) -> dict[str, Any]:
    per_second = {"messages": one.messages, "published": one.published, "bytes": one.bytes}
    return {"over_seconds": round(one.over_s, 3), **{f"{what}_per_second": rate for what, rate in per_second.items()}}


def create(args: argparse.Namespace, output: Output) -> int:
    config, topic = load(args.config), Topic.parse(args.topic)
    tables = writable(args, config, "geo topics create")
    columns = admission.own_columns(args.columns, lambda: tables.spark) if args.columns else []
    if args.partitions is None:
        create_single(tables, topic, columns)
        created = [topic]
    else:
        created = create_partitions(tables, topic, args.partitions, columns)
    output.data({"topic": str(topic), "cluster": args.cluster, "partitions": args.partitions, "created": list(map(str, created))})
    for one in created:
        output.text(f"{one} is in {args.cluster}")
    return 0


def set_policy(args: argparse.Namespace, output: Output) -> int:
    config, topic = load(args.config), Topic.parse(args.topic)
    refuse_absent(LookedAt("geo topics set", config, "auto").clusters[config.cluster(args.cluster).name], topic, to_change=True)
    tables = writable(args, config, "geo topics set")
    if args.add_columns is not None:
        return _add_columns(args.add_columns, tables, topic, output)
    clusters = None if args.inherit else args.replication_clusters.split(",")
    changed = set_replication_clusters(tables, config, topic, clusters)
    output.data({"topics": list(map(str, changed)), "cluster": args.cluster, "replication_clusters": clusters})
    for one in changed:
        output.text(f"{one} in {args.cluster}: replication clusters {','.join(clusters) if clusters else 'as configured'}")
    return 0


def _add_columns(ddl: str, tables: ClusterTables, topic: Topic, output: Output) -> int:
    done, cluster = grow_topic(tables, topic, admission.own_columns(ddl, lambda: tables.spark)), tables.cluster.name
    output.data(
        [
            {"topic": str(one), "cluster": cluster, "added": _as_json(new.added), "widened": _as_json(new.widened)}
            for one, new in done.items()
        ]
    )
    output.text(*(f"{one} in {cluster}: {f'has now {new.told}' if new else 'had them'}" for one, new in done.items()))
    return 0


def _as_json(columns: Iterable[StructField]) -> dict[str, str]:
    return {one.name: sql_type(one.dataType) for one in columns}


def delete(args: argparse.Namespace, output: Output) -> int:
    config = load_for(args)
    tables = before_change("geo topics delete", config, args.cluster).clusters[args.cluster]
    if is_glob(args.topic):
        delete_topic.chosen_topics(tables, args.topic)
    else:
        refuse_absent(tables, Topic.parse(args.topic), to_change=True)
    require_agreement(
        args, output, f"this deletes {args.topic} in {args.cluster} for good, with its messages and what hangs on it there"
    )
    done = delete_topic.delete_topics(
        start_spark("geo topics delete", config), config, args.cluster, args.topic, lose=args.lose, dry_run=args.dry_run
    )
    output.data([_deleted(one, dry_run=args.dry_run) for one in done])
    for one in done:
        output.text(*_deleted_lines(one, dry_run=args.dry_run))
    return 1 if any(one.stays for one in done) else 0


def _deleted(one: delete_topic.Deleted, *, dry_run: bool) -> dict[str, Any]:
    f = one.facts
    return {"topic": f.topic, "cluster": f.cluster, "dry_run": dry_run, "refused": one.refused, "messages": f.messages,
            "only_here": f.only.messages, "only_here_examples": f.only.examples, "cannot_be_read": f.only.away or {},
            "links": f.links, "requests": f.requests, "producers": f.producers, "subscriptions": f.subscriptions,
            "publications": f.publications, "stays": one.stays}  # fmt: skip


def _deleted_lines(one: delete_topic.Deleted, *, dry_run: bool) -> list[str]:
    f, head = one.facts, f"{one.facts.topic} in {one.facts.cluster}"
    if one.refused is not None:
        return [f"would be refused: {one.refused}"]
    held = f"{counted(f.messages, 'message')}{f', {f.only.told}' if f.messages else ''}"
    with_it = [f"{what} {', '.join(names)}" for what, names in (("links", f.links), ("producers", f.producers)) if names]
    with_it += [counted(f.requests, "request") + " to its links"] if f.requests else []
    lines = [f"{head}: {'would be deleted' if dry_run else 'deleted'}, {held}"]
    if one.stays:
        lines = [f"{head}: deleted but for its files, which cannot be removed from here, {held}"]
    if with_it:
        lines.append(f"  with it: {'; '.join(with_it)}")
    if f.subscriptions:
        names = ", ".join(f.subscriptions)
        lines.append(f"  what stays, in every cluster: subscriptions {names} (`geo subscriptions delete` ends them)")
    if f.publications:
        lines.append(
            f"  still in the configuration: what a broker publishes into it, {', '.join(f.publications)}: that will be FAILED"
        )
    if one.stays:
        lines += [f"  to be removed with the storage's own tools: {place}" for place in one.stays]
        lines.append("  then run this again. Until then the topic cannot be made again here.")
    elif not dry_run:
        lines.append(f"  No link brings it back; `geo topics create` and a producer in {f.cluster} make it again.")
    return lines


def peek(args: argparse.Namespace, output: Output) -> int:
    config, topic = load_for(args), Topic.parse(args.topic)
    tables = LookedAt("geo peek", config, args.engine).clusters[args.cluster]
    try:
        found = list(newest(tables, topic, args.n))
    except NotThereError:
        refuse_absent(tables, topic)
        raise
    for message in found:
        raw = message.pop("payload")
        message["payload_bytes"] = None if raw is None else len(raw)
        if args.payload and raw is not None:
            message["payload"] = raw.hex() if args.payload == "hex" else raw.decode("utf-8", "replace")
    output.data(found)
    for message in found:
        shown = {k: v for k, v in message.items() if v not in (None, {}) and k not in ("message_id", "columns")}
        shown |= {k: v for k, v in message["columns"].items() if v is not None}
        output.lines([Line(f"{message['message_id']}  " + "  ".join(f"{k}={as_text(v)}" for k, v in shown.items()))])
    return 0
