"""All inbound links of a cluster in one process: the broker with one kind of work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pyspark.sql import SparkSession

from geo.config.model import Config
from geo.errors import UsageError
from geo.fleet.turns import turns_of
from geo.journal.cluster import StartSpark, connect
from geo.journal.events import events_of
from geo.log.housekeeping import open_for_writing
from geo.names import ALL_TOPICS
from geo.progress import Counts
from geo.replication.absent_regions import refuse_to_recreate
from geo.replication.link_topics import LinkReport, LinkTopics, note_link, report_of_link
from geo.replication.replicator_work import ReplicatorWork
from geo.session import require_delta
from geo.streams.life import Life, State
from geo.streams.life_events import LifeEvents
from geo.streams.supervisor import Supervisor
from geo.streams.trigger import AVAILABLE_NOW, parse_trigger
from geo.streams.work import Group, lag_words


class Replicator:
    """Runs every matching topic of every inbound link of `target`; `run` until done or stopped."""

    def __init__(
        self,
        spark: SparkSession | StartSpark,
        config: Config,
        target: str,
        *,
        source: str | None = None,
        topics: str = ALL_TOPICS,
        trigger: str = AVAILABLE_NOW,
        take_over: bool = False,
        on_event: Callable[[LinkReport], None] = lambda report: None,
    ) -> None:
        """`spark`: or what starts it, when it is first needed: where clusters are on S3 and there is little news it is not."""
        if not callable(spark):
            require_delta(spark)
        parse_trigger(trigger)
        links = [link for link in config.inbound(target) if source in (None, link.source)]
        if not links:
            config.cluster(target)
            named = f" from {source}" if source else ""
            raise UsageError(
                f"no link{named} leads to {target}; the links are {', '.join(k.name for k in config.links) or 'none'}."
            )
        own_tables = open_for_writing(connect(spark, config.cluster(target)), config)
        refuse_to_recreate(config, own_tables)
        groups = [
            LinkTopics(
                own_tables,
                connect(spark, config.cluster(link.source)),
                config,
                link,
                topics,
                trigger,
                turns_of(link, config),
                take_over=take_over,
            )
            for link in links
        ]
        self._on_event, self._lives = on_event, LifeEvents(events_of(own_tables))
        self._supervisor = Supervisor[ReplicatorWork](groups, once=trigger == AVAILABLE_NOW, on_change=self._changed)

    def _changed(self, group: Group[ReplicatorWork], work: ReplicatorWork | None, life: Life) -> None:
        self._on_event(report_of_link(group, work, life))
        note_link(self._lives, group, work, life)

    def stop(self) -> None:
        """Let running batches end, then stop; callable from a signal handler."""
        self._supervisor.stop()

    def counts(self) -> Counts:
        """Counts of all since the start."""
        return {"replicated": sum(report_of_link(*one).replicated for one in self._supervisor.works())}

    def status(self) -> str:
        """Counts of topics of links by state, and how many are behind."""
        works = self._supervisor.works()
        states = Counter(life.state.value for _, _, life in works)
        told = ", ".join(f"{count} {state}" for state, count in states.items()) or "are looked for"
        return f"link topics {told}{lag_words(work.replicator.behind for _, work, life in works if life.state is State.RUNNING)}"

    def run(self) -> list[LinkReport]:
        """Replicate until stopped, or with the available-now trigger until everything there is has crossed.

        A topic that cannot continue is reported as FAILED, one that another runner has, and a source that cannot be read, as DELAYED. The others
        continue. Raises AlreadyOwnedError if other runners have all of it at the start, and what refuses every source then.
        """
        reports = [report_of_link(group, work, life) for group, work, life in self._supervisor.run()]
        return sorted(reports, key=lambda report: (report.link, report.topic))
