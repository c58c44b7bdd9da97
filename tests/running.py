"""The links into a cluster, running in a thread of the test while that does something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from geo.delta.engines.native import rows as native_rows
from geo.fleet.replicator import Replicator
from geo.names import ALL_TOPICS, Topic
from geo.replication import replicator_work
from geo.replication.link_topics import LinkReport
from geo.streams import timetable
from geo.streams.life import State
from tests.waiting import InThread
from tests.world import World

TRIGGER = "250 ms"
"""Of queries that run while a test does something else: eight that look ten times a second keep two cores busy."""


class Running(InThread[list[LinkReport]]):
    """The links into a cluster, or with `topics` some of their topics, and what they reported."""

    def __init__(self, world: World, target: str, *, topics: str = ALL_TOPICS, trigger: str = TRIGGER) -> None:
        self.reports: list[LinkReport] = []
        links = Replicator(world.spark, world.config, target, topics=topics, trigger=trigger, on_event=self.reports.append)
        super().__init__(links.run, links.stop, lambda: self.reports)

    def last(self, topic: Topic) -> tuple[State | None, str | None]:
        """State and reason that were last reported of a topic."""
        return next(((r.state, r.reason) for r in reversed(self.reports) if r.topic == str(topic)), (None, None))


@contextmanager
def running(world: World, target: str, *, queries: bool = False) -> Iterator[Running]:
    """With `queries` every news is brought by a streaming query, as many rows are, and none by this process alone."""
    # Intervals only: so that nobody waits ten seconds for nothing.
    with (
        mock.patch.object(timetable, "DISCOVERY_S", 0.5),
        mock.patch.object(timetable, "RECORD_S", 0.5),
        mock.patch.object(timetable, "SOURCE_LOOK_S", 0.5),
        mock.patch.object(replicator_work, "BUSY_TURNS", 0 if queries else replicator_work.BUSY_TURNS),
        mock.patch.object(native_rows, "MOST_ROWS", -1 if queries else native_rows.MOST_ROWS),
        Running(world, target) as links,
    ):
        yield links
