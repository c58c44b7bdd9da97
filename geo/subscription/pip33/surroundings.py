"""The clusters as they are at a look: their version subscriptions, policies and links, and by these the ways of a topic's messages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations

from geo.config.model import Config
from geo.journal.cluster import ClusterTables
from geo.names import Topic
from geo.streams.life import State
from geo.subscription.pip33.asked import Ways, ways_of
from geo.subscription.pip33.peers import Peer, Registries, Said
from geo.subscription.versions.version_subscriptions import VersionSubscription


class Surroundings:
    """This cluster and its peers, and what each says of itself as of the last look."""

    def __init__(self, tables: ClusterTables, peers: Mapping[str, Peer], config: Config) -> None:
        self.cluster, self.peers, self.config = tables.cluster.name, peers, config
        self._registries, self._own = Registries(tables), Said()
        self.looked_at = -math.inf
        """The time of the last look, by a clock that only goes on."""
        self.unread: dict[str, str] = {}
        """The reason why a subscription's checkpoint cannot be read, as it was reported."""

    def look(self, now: float) -> dict[Topic, dict[str, VersionSubscription]]:
        """Ask all clusters. Returns the topics with a version subscription that is replicated here or elsewhere, and of each the
        subscriptions here."""
        self.looked_at = now
        for peer in self.peers.values():
            peer.look()
        self._own = self._registries.now()
        found: dict[Topic, dict[str, VersionSubscription]] = {}
        for one in self._own.subscriptions:
            found.setdefault(one.topic, {})[one.subscription] = one
        for peer in self.peers.values():
            for there in peer.said.subscriptions:
                found.setdefault(there.topic, {})
        return found

    def all_said(self) -> dict[str, Said]:
        """Answers of all clusters, this one too."""
        return {self.cluster: self._own, **{name: peer.said for name, peer in self.peers.items()}}

    def unable(self, topic: Topic, ways: Ways) -> dict[str, str]:
        """The clusters that cannot answer now, and why."""
        links = {name: said.links for name, said in self.all_said().items()}

        def fault(source: str, target: str) -> str | None:
            if target in self.peers and (why := self.peers[target].unreadable) is not None:
                return f"{target} cannot be read: {why}"
            if (row := links[target].get((source, str(topic)))) is None:
                return f"link {source}->{target} has not run for the topic yet"
            if row.state in (State.RUNNING, State.STOPPED):
                return None
            return f"link {source}->{target} is {row.state.value}: {row.reason or 'nobody says why'}"

        return ways.unable(fault)


class TopicWays:
    """The ways of one topic's messages between the clusters, by their policies."""

    def __init__(self, surroundings: Surroundings, topic: Topic) -> None:
        self._surroundings, self._topic = surroundings, topic
        config, here = surroundings.config, surroundings.cluster
        everywhere = dict.fromkeys(config.clusters, tuple(config.clusters))
        ways = {name: config.hubs(name, here, topic, everywhere) for name in surroundings.peers}
        self.may_come = frozenset(name for name, way in ways.items() if way is not None)
        """Clusters whose messages links could replicate into this one, whatever policies say."""
        self._derived: tuple[Mapping[str, Sequence[str] | None], Ways] | None = None
        """The ways, and the clusters' policies by which they were derived."""

    def now(self) -> Ways:
        """Derived once, and again when a cluster's policy of the topic has changed."""
        policies = {name: said.policies.get(self._topic) for name, said in self._surroundings.all_said().items()}
        local = {name: None if policy is None else policy.replication_clusters for name, policy in policies.items()}
        if self._derived is None or self._derived[0] != local:
            config = self._surroundings.config
            pairs = permutations(sorted(config.clusters), 2)
            hubs = {pair: way for pair in pairs if (way := config.hubs(*pair, self._topic, local)) is not None}
            self._derived = local, ways_of(self._surroundings.cluster, hubs)
        return self._derived[1]
