"""The works of a broker, by kind: the state and counts of each, for people, programs and the placement of bundles."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from geo.faults import Tried
from geo.log.publish_work import OneProducer
from geo.names import Topic
from geo.progress import Counts
from geo.replication.link_topics import LinkTopics
from geo.streams.life import Life, State
from geo.streams.work import Group, lag_words
from geo.subscription.acks.namespace_folds import Namespaces
from geo.subscription.pip33.version_sync import Versions


class WorkKind(str, Enum):
    """Kind of work that a broker runs."""

    PUBLISHER = "publisher"
    LINK = "link topic"
    FOLD = "fold"
    VERSIONS = "version sync"


_KINDS = {OneProducer: WorkKind.PUBLISHER, LinkTopics: WorkKind.LINK, Namespaces: WorkKind.FOLD, Versions: WorkKind.VERSIONS}
"""Kinds by the class of the group."""


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """Report of one piece of work, or of a group that cannot be asked what it has. `name` is for people, `fields` are the same for programs: of a
    link those of `geo replicate`, of a publisher those of `geo publish`. `count`: how many messages it has published or replicated, of a fold how
    many cursors it has written, of the version sync how many markers.
    """

    kind: WorkKind
    name: str
    state: State
    reason: str | None
    count: int
    fields: Mapping[str, object]
    behind: int | None = None
    """Commits of a link's source, of a topic, that it has not replicated, at least."""


def report_of(group: Any, work: Any, life: Life) -> BrokerReport:
    """Reports a piece of work, or a group that cannot be asked what it has."""
    told = group.report(work)
    return BrokerReport(_KINDS[type(group)], told.name, life.state, life.reason, told.count, told.fields, told.behind)


class WorkReports:
    """Lives of the works of a broker, and of their groups. Any thread may ask."""

    def __init__(self) -> None:
        self._lives: dict[tuple[int, str], tuple[Group[Any], Any, Life]] = {}
        """Lives of works, by group and name, and of each group, by an empty name."""
        self._of_gone: Counter[WorkKind] = Counter()
        """Counts of groups that are gone."""
        self._changing = threading.Lock()

    def note(self, group: Group[Any], work: Any, life: Life) -> BrokerReport:
        """Take note of a life that changed, and report it."""
        with self._changing:
            self._lives[id(group), "" if work is None else str(work)] = group, work, life
        return report_of(group, work, life)

    def drop_all_but(self, groups: Collection[Group[Any]]) -> None:
        """Drop the works of groups that an earlier change ended; the sum of their counts is kept."""
        running = {id(group) for group in groups}
        with self._changing:
            for key, told in list(self._lives.items()):
                if key[0] not in running:
                    del self._lives[key]
                    report = report_of(*told)
                    self._of_gone[report.kind] += report.count

    def _all(self) -> list[tuple[Group[Any], Any, Life]]:
        with self._changing:
            return list(self._lives.values())

    def behind(self) -> set[tuple[str, Topic]]:
        """The topics of links, by their sources, that are not at the end of their source for sure, or left out what nobody has accepted."""
        found = set()
        for group, work, life in self._all():
            if not isinstance(group, LinkTopics) or work is None:
                continue
            with Tried():  # whether it is at the end is not known
                is_at_end = life.state is State.STOPPED or (life.state is State.RUNNING and not work.is_behind)
                if is_at_end and work.replicator.row.not_accepted == 0:
                    continue
            found.add((group.link.source, work.topic))
        return found

    def is_source_away(self) -> bool:
        """True if the source of a link cannot be asked what it has."""
        return any(
            isinstance(group, LinkTopics) and work is None and life.state in (State.DELAYED, State.FAILED)
            for group, work, life in self._all()
        )

    def counts(self) -> Counts:
        """Counts of all works since the start."""
        with self._changing:
            reports = [report_of(*one) for one in self._lives.values()]
            done = self._of_gone + Counter({kind: sum(one.count for one in reports if one.kind is kind) for kind in WorkKind})
        published, replicated, written = (done[kind] for kind in (WorkKind.PUBLISHER, WorkKind.LINK, WorkKind.VERSIONS))
        return {"messages published": published, "replicated": replicated, "markers written": written}

    def words(self, groups: Collection[Group[Any]]) -> str:
        """Words for people: how many works of each kind of these groups are in which state, and how far behind those are that run."""
        running = {id(group) for group in groups}
        reports = [report_of(*one) for one in self._all() if id(one[0]) in running]
        counts = Counter((one.kind, one.state) for one in reports)
        states = [
            f"{kind.value}s " + ", ".join(f"{counts[kind, state]} {state.value}" for state in State if counts[kind, state])
            for kind in WorkKind
            if any(of == kind for of, _ in counts)
        ]
        lag = lag_words(one.behind for one in reports if one.state is State.RUNNING)
        return f"{'; '.join(states) or 'nothing runs yet'}{lag}"
