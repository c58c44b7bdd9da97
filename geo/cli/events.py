"""`geo events`."""

from __future__ import annotations

import argparse
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from geo.asking import Late, ask_all
from geo.cli.arguments import Verbs, add_engine, add_glob, ago_or_moment
from geo.cli.output import Line, Output, table_lines
from geo.cli.running import LookedAt, say_unreadable, stop_on_signals, unreadable_row
from geo.cli.verbs import typed
from geo.config import load
from geo.errors import RetryableError, UsageError
from geo.faults import Tried
from geo.journal.cached_view import CachedView
from geo.journal.cluster import ClusterTables
from geo.journal.event_rate import Event, EventKind
from geo.journal.events import KEPT, read_events
from geo.names import ALL_TOPICS, check_topic_glob, is_glob
from geo.now import utc_now
from geo.ops.named import chosen
from geo.ops.regions import ANSWERS_S
from geo.reasons import Reason
from geo.schemas import EVENTS
from geo.text import show

LOOK_S, REMOTE_LOOK_S = 1.0, 5.0
"""Seconds between two looks of `--follow`."""

LATE = timedelta(hours=2)
"""Age up to which an event that is written behind newer ones is followed. (Of a region that could not be read for longer all
is.)
"""

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
    if not is_glob(glob):
        chosen(LookedAt("geo events", config, args.engine).regions, glob, alone=True)
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
            _say(output, one, args.config)
        _say_away(output, unreadable)
        given = looked.regions.given  # also those that did not answer: they may come back
        every_s = LOOK_S if all(tables.is_near for tables in given.values()) else REMOTE_LOOK_S
        followed = {
            name: Followed(tables, begin, [one for one in found if one.cluster == name]) for name, tables in given.items()
        }
        _follow(args, output, followed, every_s, is_wanted)
        return 0
    output.data([*(fields_of(one, args.config) for one in found), *unreadable])
    output.lines(
        table_lines(HEAD, [cells_of(one, args.config) for one in found], output.width)
    )  # verbs that were typed, as they were
    return say_unreadable(output, unreadable)


def _kinds(text: str | None) -> set[EventKind]:
    names = [] if text is None else text.upper().split(",")
    for name in names:
        if name not in _KINDS:
            raise UsageError(f"there is no kind {show(name)} of events; there are: {', '.join(_KINDS)}")
    return {EventKind(name) for name in names}


class Followed:
    """The events of one cluster as they come. It remembers those of LATE before the last look that told of some, and no more."""

    def __init__(self, tables: ClusterTables, begin: datetime, told: Iterable[Event]) -> None:
        self._tables, self._begin = tables, begin
        self._told = {one.id: one for one in told}
        self._watched = CachedView(tables.journal(EVENTS), lambda: read_events(tables, self._begin))
        self._last: Sequence[Event] = ()

    def look(self) -> Sequence[Event]:
        """Those that are there now, of the time that is followed; the same value while nothing has come. Raises RetryableError where the table
        was, and is away."""
        table = self._tables.journal(EVENTS).table
        if self._last and table.is_near and table.log_folder is not None and not table.log_folder.names():
            raise RetryableError(f"{table}: there is no table now.", code=Reason.SOURCE_GONE)
        return self._watched.now()

    def fresh(self, there: Sequence[Event]) -> list[Event]:
        """Those of what a look told that were not told before, or count more now."""
        if there is self._last or not there:  # of one that is away nothing is forgotten
            return []
        self._last = there
        found = [one for one in there if one.id not in self._told or self._told[one.id].count < one.count]
        self._begin = max(self._begin, max(one.at for one in there) - LATE)
        self._told |= {one.id: one for one in found}
        self._told = {one.id: one for one in self._told.values() if one.at >= self._begin}
        return found


def _follow(
    args: argparse.Namespace, output: Output, regions: Mapping[str, Followed], every_s: float, is_wanted: Callable[[Event], bool]
) -> None:
    """Say what comes, and what counts more than it did, until a signal. A cluster that cannot be read is asked again, and one that hangs holds
    up no other; that is said once."""
    stopped, late = threading.Event(), Late()
    stop_on_signals(args, stopped.set)
    away: dict[str, float] = {}
    while not stopped.wait(every_s):
        fresh = list[Event]()
        for name, answer in ask_all({name: one.look for name, one in regions.items()}, every_s, late).items():
            with Tried() as tried:
                fresh += filter(is_wanted, regions[name].fresh(answer.result()))
            if tried.fault is None:
                away.pop(name, None)
            elif away.setdefault(name, time.monotonic()) + ANSWERS_S < time.monotonic():
                away[name] = math.inf
                _say_away(output, [unreadable_row(name, tried.fault)])
        for one in sorted(fresh, key=lambda one: (one.at, one.id)):
            _say(output, one, args.config)


def _say_away(output: Output, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        output.line(row)
    say_unreadable(output, rows)


def _say(output: Output, one: Event, config: str) -> None:
    output.line(fields_of(one, config))
    output.lines([Line("  ".join(cell for cell in cells_of(one, config) if cell))])


def cells_of(one: Event, config: str) -> Sequence[str | None]:
    """An event as people read it, below `HEAD`. `config`: of who reads it."""
    change = one.to_state if one.from_state in (None, one.to_state) else f"{one.from_state} -> {one.to_state}"
    times = f" ({one.count:,} times)" if one.count > 1 else ""
    why = ": ".join(filter(None, (None if one.reason_code is None else one.reason_code.value, _reason(one, config))))
    return f"{one.at:%Y-%m-%dT%H:%M:%SZ}", one.cluster, one.kind.value, one.subject, change + times, why, one.by


def fields_of(one: Event, config: str) -> dict[str, Any]:
    """An event for programs. `config`: of who reads it."""
    return {
        "at": one.at, "cluster": one.cluster, "kind": one.kind, "subject": one.subject, "topic": one.topic,
        "from_state": one.from_state, "to_state": one.to_state, "code": one.reason_code, "reason": _reason(one, config), "by": one.by, "count": one.count,
    }  # fmt: skip


def _reason(one: Event, config: str) -> str | None:
    """Adds to the reason what to do, as it is typed for the configuration of who reads it. Who noted the event may have another, elsewhere."""
    why, mark, do = (one.reason or "").partition("Do: ")
    return f"{why}{mark}{typed(do, config)}" or None
