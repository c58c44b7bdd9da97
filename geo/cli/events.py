"""`geo events`."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from geo.cli.arguments import Verbs, add_engine, add_glob, ago_or_moment
from geo.cli.output import Output
from geo.cli.running import LookedAt, say_unreadable, stop_on_signals
from geo.config import load
from geo.errors import UsageError
from geo.faults import faults_here
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import Event, EventKind
from geo.journal.events import KEPT, read_events
from geo.journal.journal import Watched
from geo.names import ALL_TOPICS, check_topic_glob
from geo.now import utc_now
from geo.text import show
from schemas import EVENTS

LOOK_S, REMOTE_LOOK_S = 1.0, 5.0
"""How often `--follow` looks."""

HEAD = ("TIME", "CLUSTER", "KIND", "SUBJECT", "CHANGE", "REASON", "BY")


def add_events(verbs: Verbs, does: str) -> None:
    p = verbs.add("events", does, events)
    p.add_argument(
        "--since", type=ago_or_moment, default=timedelta(hours=2), metavar="DURATION|TIME", help="from then on (default: 2h)"
    )
    p.add_argument("--cluster", help="only those of this cluster (default: of all)")
    add_glob(p)
    p.add_argument("--kind", metavar="KIND,…", help=f"only these: {', '.join(_KINDS)}")
    p.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until a signal")
    add_engine(p)


_KINDS = [kind.value for kind in EventKind if kind is not EventKind.OTHER]


def events(args: argparse.Namespace, output: Output) -> int:
    glob, kinds = check_topic_glob(args.topic), _kinds(args.kind)
    config = load(args.config)
    if args.cluster is not None:
        config.cluster(args.cluster)
    looked = LookedAt("geo events", config, args.engine, only=args.cluster)
    now = utc_now()
    begin = now - min(args.since, KEPT) if isinstance(args.since, timedelta) else max(args.since, now - KEPT)

    def is_wanted(one: Event) -> bool:
        of_topic = args.topic == ALL_TOPICS or one.may_be_about(glob)
        return of_topic and (not kinds or one.kind in kinds)

    found, unreadable = looked.read_each(lambda tables: filter(is_wanted, read_events(tables, begin)), alone=True)
    found.sort(key=lambda one: (one.at, one.id))
    if args.follow:
        for one in found:
            _say(output, one)
        for row in unreadable:
            output.line(row)
        say_unreadable(output, unreadable)
        _follow(args, output, looked.clusters, begin, is_wanted, {one.id: one.count for one in found})
        return 0
    output.data([*map(fields_of, found), *unreadable])
    output.table(HEAD, [cells_of(one) for one in found])
    return say_unreadable(output, unreadable)


def _kinds(text: str | None) -> set[EventKind]:
    names = [] if text is None else text.upper().split(",")
    for name in names:
        if name not in _KINDS:
            raise UsageError(f"there is no kind {show(name)} of events; there are: {', '.join(_KINDS)}")
    return {EventKind(name) for name in names}


def _follow(
    args: argparse.Namespace,
    output: Output,
    clusters: dict[str, ClusterTables],
    begin: datetime,
    is_wanted: Callable[[Event], bool],
    told: dict[str, int],
) -> None:
    """Say what comes, and what counts more than it did, until a signal. A cluster that cannot be read is asked again."""
    stopped = threading.Event()
    stop_on_signals(args, stopped.set)
    watched = [Watched(tables.journal(EVENTS), partial(read_events, tables, begin)) for tables in clusters.values()]
    every_s = LOOK_S if all(tables.is_near for tables in clusters.values()) else REMOTE_LOOK_S
    while not stopped.wait(every_s):
        with suppress(*faults_here()):
            fresh = [one for each in watched for one in each.now() if told.get(one.id, 0) < one.count and is_wanted(one)]
            for one in sorted(fresh, key=lambda one: (one.at, one.id)):
                told[one.id] = one.count
                _say(output, one)


def _say(output: Output, one: Event) -> None:
    output.line(fields_of(one))
    output.text("  ".join(cell for cell in cells_of(one) if cell))


def cells_of(one: Event) -> Sequence[str | None]:
    """An event as people read it, below `HEAD`."""
    change = one.to_state if one.from_state in (None, one.to_state) else f"{one.from_state} -> {one.to_state}"
    times = f" ({one.count:,} times)" if one.count > 1 else ""
    why = ": ".join(filter(None, (None if one.reason_code is None else one.reason_code.value, one.reason)))
    return f"{one.at:%Y-%m-%dT%H:%M:%SZ}", one.cluster, one.kind.value, one.subject, change + times, why, one.by


def fields_of(one: Event) -> dict[str, Any]:
    """An event for programs."""
    return {
        "at": one.at, "cluster": one.cluster, "kind": one.kind, "subject": one.subject, "topic": one.topic,
        "from_state": one.from_state, "to_state": one.to_state, "code": one.reason_code, "reason": one.reason, "by": one.by, "count": one.count,
    }  # fmt: skip
