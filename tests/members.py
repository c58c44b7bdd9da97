"""A broker's part among several, for tests that drive it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from geo.fleet.assignments import read_owners
from geo.fleet.load_reports import names_of, read_reports
from geo.fleet.member import Member
from geo.journal.cluster import ClusterTables
from geo.names import Topic
from tests.world import World


def bundle_owners(tables: ClusterTables) -> dict[str, str]:
    """The broker that owns each bundle."""
    claims = read_owners(tables).claims(names_of(read_reports(tables)))
    return {bundle: one.broker for bundle, one in claims.items() if not one.released}


def leader(tables: ClusterTables) -> str | None:
    """The broker that leads."""
    return read_owners(tables).leader(names_of(read_reports(tables)))


class Alone:
    """A broker of a cluster, which is asked for some topics; its rounds are counted, and not waited for. `tables`: those of another process
    than this, for a second broker."""

    def __init__(self, world: World, topics: Sequence[Topic], name: str = "a", tables: ClusterTables | None = None) -> None:
        assert world.config.placement is not None
        self.topics, self.now, self.said = topics, time.monotonic(), list[str]()
        self.member = Member(
            tables or world.tables("us"),
            name,
            world.config.placement,
            activities=list,
            look_now=lambda: lambda: True,
            say=self.said.append,
        )
        self.member.begin(take_over=False)

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(20):
            if self.has_all() and holds():
                return
            self.now += 1
            self.member.round(self.now)
        raise AssertionError(f"not within 20 rounds: {self.said}")

    def has_all(self) -> bool:
        """Asks for each topic, as groups of works do; whether all are its own."""
        return [self.member.elsewhere(topic) for topic in self.topics] == [None] * len(self.topics)
