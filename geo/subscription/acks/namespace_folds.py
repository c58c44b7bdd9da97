"""The folds of a cluster's namespaces as works of a supervisor: which there are, and running them alone (`geo subscriptions fold`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from pyspark.sql import SparkSession

from geo.config.model import Config
from geo.journal.cluster import ClusterTables, connect
from geo.journal.events import events_of
from geo.log.housekeeping import open_for_writing
from geo.log.topics import registered_topics
from geo.session import require_delta
from geo.streams.life import Life, State
from geo.streams.life_events import LifeEvents
from geo.streams.query_work import QueryWorks
from geo.streams.share import ALL, Share
from geo.streams.supervisor import Supervisor, log_fault, unfinished
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.streams.work import Found, Group, WorkReport
from geo.subscription.acks.folding import Folded, NamespaceFold


class Namespaces(QueryWorks[NamespaceFold]):
    """The namespaces of a cluster that have acknowledgements, as works."""

    def __init__(self, tables: ClusterTables, config: Config, trigger: str, *, take_over: bool, share: Share = ALL) -> None:
        """`share`: the topics of acknowledgements that are folded by this process."""
        super().__init__(share)
        self._tables, self._config, self._trigger, self._take_over = tables, config, trigger, take_over

    def __str__(self) -> str:
        return f"folds in {self._tables.cluster.name}"

    def discover(self, known: Mapping[Hashable, tuple[NamespaceFold, State]]) -> Found[NamespaceFold]:
        namespaces = [one.topic for one in registered_topics(self._tables) if one.topic == one.topic.acks]
        fresh = [
            (acks, NamespaceFold(self._tables, self._config, acks, self._trigger, take_over=self._take_over))
            for acks in namespaces
            if acks not in known
        ]
        return self._found(known, fresh)

    def report(self, work: NamespaceFold | None) -> WorkReport:
        if work is None:
            return WorkReport(str(self), 0, {"topic": None, "cursors": 0})
        return WorkReport(str(work.acks), work.done.cursors, {"topic": str(work.acks), "cursors": work.done.cursors})


class Folding:
    """Folds the acknowledgements of every namespace of a cluster; `run` until done or stopped."""

    def __init__(
        self, spark: SparkSession, config: Config, cluster: str, *, trigger: str = AVAILABLE_NOW, take_over: bool = False
    ) -> None:
        require_delta(spark)
        parse_trigger(trigger)
        tables = open_for_writing(connect(spark, config.cluster(cluster)), config)
        group = Namespaces(tables, config, trigger, take_over=take_over)
        self._lives = LifeEvents(events_of(tables))
        self._supervisor = Supervisor[NamespaceFold]([group], once=trigger == AVAILABLE_NOW, on_change=self._changed)

    def _changed(self, group: Group[NamespaceFold], work: NamespaceFold | None, life: Life) -> None:
        log_fault(group, work, life)
        self._lives.note_work(group, work, life)

    def stop(self) -> None:
        """Let running batches end, then stop; callable from a signal handler."""
        self._supervisor.stop()

    def run(self) -> Folded:
        """Fold until stopped, or with the available-now trigger what is there. A namespace that fails stops no other.

        One that another process folds here is DELAYED: taken up once that one has ended.
        """
        ended = self._supervisor.run()
        done = [work.done for _, work, _ in ended if work is not None]
        left = unfinished((group, None if work is None else work.acks, life) for group, work, life in ended)
        return Folded(sum(one.cursors for one in done), sum(one.compacted for one in done), left)
