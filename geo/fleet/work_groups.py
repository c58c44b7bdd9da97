"""The groups of works that a configuration wants of a broker: publications, inbound links, folds, and the version sync."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from geo.config.model import NUM_FETCHERS, Config, DispatchRate, Link
from geo.config.publication import Publication
from geo.errors import UsageError
from geo.fleet.turns import turns_of
from geo.fleet.work_reports import WorkKind
from geo.journal.cluster import ClusterTables, connect
from geo.log.publish import PublishOptions, publish_source
from geo.log.publish_stream import SourceStream
from geo.log.publish_work import OneProducer, PublishWork
from geo.names import ALL_TOPICS
from geo.replication.link_topics import LinkTopics
from geo.streams.share import Share
from geo.streams.trigger import AVAILABLE_NOW
from geo.streams.work import Group
from geo.subscription.acks.namespace_folds import Namespaces
from geo.subscription.pip33.version_sync import Versions

VERSIONS_TRIGGER = "200 milliseconds"
"""A snapshot takes four batches of controllers, one after the other."""

FOLD_TRIGGER, REMOTE_FOLD_TRIGGER = "30 seconds", "2 minutes"
"""Nobody waits for a fold: consumers read the records that are not folded yet. (The second: where a look is a request.)"""


Part = tuple[object, Group[Any]]
"""A group, with what it was made from: one of which nothing has changed is not made again."""


@dataclass(slots=True)
class WorkGroups:
    """Makes the groups of one broker. `take_over`: works that begin now take the place of others that live. `share`: which topics are the
    broker's."""

    spark: SparkSession
    tables: ClusterTables
    trigger: str
    share: Share
    take_over: bool

    def made_of(self, config: Config, running: Sequence[Part], before: Config) -> list[Part]:
        """The groups of a configuration, with what each was made from; those of which nothing has changed are those that run.

        Raises UsageError for what cannot change while a broker runs, compared with the configuration `before`.
        """
        cluster = self.tables.cluster.name
        if config.cluster(cluster) != self.tables.cluster:
            raise UsageError(
                f"it changes cluster {cluster} itself (where its tables are, or how they are reached): stop this broker, and start it again."
            )
        if (config.placement is None) != (before.placement is None):
            raise UsageError(
                "it changes whether brokers share the cluster (placement): stop all brokers of the cluster, and start them again."
            )
        # Whoever writes a log asks who reads it, where else it is, and for how long: routes, peers, expiry. How fast links are
        # changes while they run.
        routes = tuple(
            replace(link, num_fetchers=NUM_FETCHERS, dispatch_rate=DispatchRate(), expect_every_s=None) for link in config.links
        )
        world = (config.clusters, routes, tuple(replace(policy, dispatch_rate=None) for policy in config.policies))
        wanted: list[tuple[object, Callable[[], Group[Any]]]] = [
            ((WorkKind.PUBLISHER, one, config.kafka.get(one.kafka or ""), world), partial(self._publisher, config, one))
            for one in config.published_in(cluster)
        ]
        wanted += [((WorkKind.LINK, link.name, world), partial(self._link, config, link)) for link in config.inbound(cluster)]
        wanted.append(((WorkKind.FOLD, world), partial(self._folds, config)))
        wanted.append(((WorkKind.VERSIONS, world, config.snapshots), partial(self._versions, config)))
        return [(made_from, _same(running, made_from) or make()) for made_from, make in wanted]

    def _publisher(self, config: Config, what: Publication) -> OneProducer:
        def begin(take_over: bool, stopped: Callable[[], bool]) -> SourceStream:
            options = PublishOptions(trigger=self.trigger, take_over=take_over, again=False, stopped=stopped)
            return publish_source(self.spark, config, what, options=options)

        work = PublishWork(begin, what, once=self.trigger == AVAILABLE_NOW, take_over=self.take_over)
        return OneProducer(work, self.share)

    def _link(self, config: Config, link: Link) -> LinkTopics:
        source, turns = connect(self.spark, config.cluster(link.source)), turns_of(link, config)
        return LinkTopics(
            self.tables, source, config, link, ALL_TOPICS, self.trigger, turns, take_over=self.take_over, share=self.share
        )

    def _folds(self, config: Config) -> Namespaces:
        every = FOLD_TRIGGER if self.tables.port is None else REMOTE_FOLD_TRIGGER
        trigger = self.trigger if self.trigger == AVAILABLE_NOW else every
        return Namespaces(self.tables, config, trigger, take_over=self.take_over, share=self.share)

    def _versions(self, config: Config) -> Versions:
        trigger = self.trigger if self.trigger == AVAILABLE_NOW else VERSIONS_TRIGGER
        return Versions(self.tables, config, trigger, take_over=self.take_over, share=self.share)


def _same(running: Sequence[Part], made_from: object) -> Group[Any] | None:
    return next((group for before, group in running if before == made_from), None)
