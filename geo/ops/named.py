"""Names that a verb is given: the partitions of a topic, and a refusal by name of what is nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NoReturn

from geo.config.yaml_nodes import suggestion
from geo.errors import UsageError
from geo.journal.cluster import ClusterTables
from geo.log.topics import Registered, all_topics, known_topics, registered_topics
from geo.names import Topic, check_topic_glob, glob_of, is_glob, nearest_topic, topic_glob_matches
from geo.ops.regions import Regions
from geo.replication.link_table import read_links
from geo.text import counted

_LISTED = "`geo topics` lists those that are there"


class Named:
    """A topic that a caller names, in the clusters that it looks at, which are read when something is first asked."""

    def __init__(self, regions: Regions, topic: Topic, *, alone: bool = False) -> None:
        """`alone`: as `Regions.read_each`."""
        self._regions, self.topic, self._alone = regions, topic, alone

    @cached_property
    def _read(self) -> tuple[set[Topic], dict[str, BaseException]]:
        """The topics that some cluster knows, those too that were deleted, and of each cluster that cannot be read, why. What only tables of links
        mention, or folders, is looked for where no registry has the topic."""
        found, away = self._regions.read_each(lambda tables: [one.topic for one in known_topics(tables)], alone=self._alone)
        if self.topic not in found and all(one.partitioned != self.topic for one in found):
            found, away = self._regions.read_each(lambda tables: [one.topic for one in _all(tables)], alone=self._alone)
        return set(found), away

    @property
    def topics(self) -> list[Topic]:
        """The topic itself, or the partitions of a partitioned one. Where nobody knows it this is the topic too."""
        found, _ = self._read
        partitions = sorted((one for one in found if one.partitioned == self.topic), key=lambda one: one.partition or 0)
        return [self.topic] if self.topic in found or not partitions else partitions

    @property
    def glob(self) -> str:
        """Glob that stands for `topics`."""
        return glob_of(str(self.topic), self._read[0])

    def require(self) -> list[Topic]:
        """Gives `topics`. Raises UsageError if no cluster has it; not while one cannot be read, which may be the one that has
        it.
        """
        found, away = self._read
        if not away and found.isdisjoint(self.topics):
            self._refuse()
        return self.topics

    def refuse_subscription(self, name: str, known: Iterable[str]) -> NoReturn:
        """Raises UsageError that says of a subscription, or else of its topic, that it is nowhere. `known`: the subscriptions of the topic, or of
        its partitions; of one that these have it says how they are named."""
        self.require()
        known = set(known)
        if name in known:
            raise UsageError(
                f"{self.topic} is partitioned. Name one of its partitions; reset and delete also take all of them: '{self.glob}'."
            )
        listed = f"`geo subscriptions` lists those that are there{suggestion(name, known) or '.'}"
        raise UsageError(f"no cluster knows a subscription {name} of {self.topic}. {listed}")

    def _refuse(self) -> NoReturn:
        found, _ = self._read
        raise UsageError(f"no cluster has {self.topic}. {_LISTED}{nearest_topic(self.topic, found)}")


def refuse_absent(tables: ClusterTables, topic: Topic, *, to_change: bool = False) -> None:
    """Raises UsageError if this cluster does not have the topic. Unless it is `to_change`, also if it has it in partitions, or it was deleted;
    a delete may not have ended. With `to_change` UnsafeError where nobody may change anything, as `refuse_unsafe_storage`."""
    if to_change:
        tables.refuse_unsafe_storage()
    found = {one.topic: one for one in _all(tables)}
    name, partitions = tables.cluster.name, sum(one.partitioned == topic for one in found)
    if topic in found and (to_change or not found[topic].is_deleted):
        return
    if (to_change and partitions) or tables.log(topic).exists():
        return
    if partitions:
        raise UsageError(
            f"{topic} has {counted(partitions, 'partition')} in {name}. Name one of them, such as {topic.with_partition(0)}."
        )
    if topic in found:
        raise UsageError(f"{topic} was deleted in {name}. `geo topics create` makes it again.")
    raise UsageError(f"{name} has no topic {topic}. {_LISTED}{nearest_topic(topic, found)}")


def require_matching(tables: ClusterTables, glob: str) -> None:
    """Raises UsageError if no topic of this cluster matches, or is that topic."""
    check_topic_glob(glob)
    there = [one for one in registered_topics(tables) if topic_glob_matches(glob, one.topic)]
    if not there and not is_glob(glob):
        refuse_absent(tables, Topic.parse(glob))
    if not there:
        raise UsageError(f"{tables.cluster.name} has no topic that matches {glob}. {_LISTED}.")


def chosen(regions: Regions, text: str, *, alone: bool = False) -> str:
    """The glob of what somebody names: a glob as it is, of a partitioned topic that of its partitions. Raises as `Named.require` for a topic
    that is nowhere, InvalidNameError for neither a glob nor a name. `alone`: as `Regions.read_each`."""
    if is_glob(text):
        return check_topic_glob(text)
    named = Named(regions, Topic.parse(text), alone=alone)
    named.require()
    return named.glob


def _all(tables: ClusterTables) -> list[Registered]:
    return all_topics(tables, (Topic.parse(topic) for _, topic in read_links(tables)))
