"""Verbs that change something, and the event by which each tells who asked for what, and what came of it."""

from __future__ import annotations

import argparse
import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from geo.journal.event_rate import EventKind
from geo.late import has_spark
from geo.names import ALL_TOPICS
from geo.text import first_line

if TYPE_CHECKING:
    from geo.config.model import Config
    from geo.journal.cluster import ClusterTables

log = logging.getLogger(__name__)

WRITES: Mapping[str, EventKind] = {
    "erase": EventKind.ERASE,
    "failover": EventKind.FAILOVER,
    "maintain": EventKind.MAINTAIN,
    "verify": EventKind.VERIFY,
    **dict.fromkeys(
        (
            *("reconcile", "backfill", "rebuild", "links pause", "links resume", "links restart", "links resolve", "links reset"),
            *("topics create", "topics set", "topics delete", "clusters remove"),
            *("subscriptions create", "subscriptions set", "subscriptions ack", "subscriptions reset", "subscriptions delete"),
            *("bundles unload", "bundles transfer", "bundles split", "isolation set", "isolation remove"),
            *("domains set", "domains remove", "anti-affinity set", "anti-affinity remove"),
        ),
        EventKind.VERB,
    ),
}
"""Kinds of events by noun and verb. Other verbs only look, or run on, and note their events themselves."""

RUNS: Mapping[str, EventKind] = dict.fromkeys(("broker", "replicate"), EventKind.OWNER)
"""Those of which it is told alone that they were refused, or failed. What they do they tell themselves, and a broker that ran also why it ended."""

_NOT_TOLD = {"--where"}
"""Arguments whose value may be of a person."""

_ENDED = {0: "", 1: " failed", 3: " refused", 130: " interrupted"}
"""Endings by exit code. What is wrongly asked for (2) changed nothing."""


def note_verb(
    arguments: Sequence[str], args: argparse.Namespace, began: datetime, code: int, error: BaseException | None = None
) -> None:
    """Note that a verb has ended which `began` then, in each cluster that it is about. The event has that time, before what came of it, unless what
    counts is its result. Raises nothing."""
    kinds = WRITES if error is None else {**WRITES, **RUNS}
    verb = next((words for words in (" ".join(arguments[:2]), arguments[0]) if words in kinds), None)
    is_rehearsal = getattr(args, "dry_run", False) or (verb == "subscriptions reset" and not args.yes)
    if verb is None or code not in _ENDED or is_rehearsal or (verb in RUNS and args.tells_itself):
        return
    from geo.config import load
    from geo.faults import reason_of
    from geo.journal.events import events_of, flush_all

    try:
        config, topic = load(args.config), getattr(args, "topic", None)
        what, came_of_it = args.noted or (verb + _ENDED[code], None)
        said = " ".join(("geo", *_typed(arguments)))
        why = None if error is None else first_line(error)
        for tables in _tables(config, _clusters(args, config)):
            events_of(tables).note(
                kinds[verb], _subject(args, tables.cluster.name), what, topic=topic,
                code=None if error is None else reason_of(error), reason=": ".join(filter(None, (said, came_of_it or why))), at=None if args.noted else began,
            )  # fmt: skip
        flush_all()
    except Exception as fault:  # what was done is done
        log.debug("no event tells of this verb: %s", first_line(fault))


def _typed(arguments: Sequence[str]) -> Iterable[str]:
    """The words that a person typed, without the configuration's place and what is not to be noted."""
    words = iter(arguments)
    for word in words:
        name, is_joined, _ = word.partition("=")
        if name == "--config":
            if not is_joined:
                next(words, None)
        elif name in _NOT_TOLD:
            yield f"{name}=…"
            if not is_joined:
                next(words, None)
        else:
            yield shlex.quote(word)


def _clusters(args: argparse.Namespace, config: Config) -> Iterable[str]:
    """Those whose tables a verb writes, or has compared."""
    if (of_one := getattr(args, "target", None) or getattr(args, "cluster", None)) is not None:
        return [of_one]
    return [name for name in config.clusters if name != getattr(args, "name", None)]


def _tables(config: Config, names: Iterable[str]) -> Iterable[ClusterTables]:
    from geo.journal.cluster import connect, without_spark

    session = None
    if has_spark():
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
    for name in names:
        cluster = config.cluster(name)
        yield without_spark(cluster) if session is None or cluster.root is not None else connect(session, cluster)


def _subject(args: argparse.Namespace, cluster: str) -> str:
    given = vars(args)
    ends = f"{given['source']}->{given['target']}" if given.get("target") else None
    named = [given[name] for name in ("topic", "subscription", "bundle", "name") if given.get(name)]
    if ends is None and named == [ALL_TOPICS]:
        return cluster
    return " ".join(filter(None, (ends, *named))) or cluster
