"""Waiting until other regions hold what was published: Kafka's acks=all, between regions."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from geo.asking import ask_all
from geo.config.model import REPLICA_LAG_MAX_S, Config
from geo.delta.table import Table
from geo.errors import NotReplicatedError, UsageError
from geo.journal.cluster import ClusterTables
from geo.log.ledgers import RECORD_KEY, Batch, Ledger, LedgerKey
from geo.log.peers import ends_in
from geo.log.topic_policies import replication_clusters
from geo.names import Topic
from geo.now import now_us
from geo.text import counted
from geo.times import from_us

WaitFor = Sequence[str] | int | Literal["in-sync"]
"""Regions by name; how many of them, whichever; or those that are in sync when the publish begins."""

WAIT_S = 60.0

IN_SYNC_US = REPLICA_LAG_MAX_S * 1_000_000
"""A region is in sync that lacks at most what was published in the last so many microseconds."""

_COMMITS = 1_000
"""Newest commits of the log that are looked at for what is that new."""

_ANSWER_S = 60.0
_LEAST_PAUSE_S, _MOST_PAUSE_S = 0.05, 5.0
"""Between two looks at all regions: twice what the last one took, within these bounds."""

Ledgers = Mapping[LedgerKey, Ledger]


@dataclass(frozen=True, slots=True)
class Replicas:
    """The regions that are to hold what a producer publishes to a topic, of which `least` are waited for; None: all of them."""

    tables: ClusterTables
    config: Config
    topic: Topic
    regions: tuple[str, ...]
    least: int | None = None

    @classmethod
    def of(
        cls, wait_for: WaitFor, tables: ClusterTables, config: Config, topic: Topic, producer: str, before: Ledgers
    ) -> Replicas:
        """`before` is what the producer has published before it begins. Raises UsageError for a region that gets nothing of the
        topic, and a number that is none of theirs."""
        own = tables.cluster.name
        local = {own: replication_clusters(tables, topic)}
        reached = tuple(name for name in config.clusters if name != own and config.hubs(own, name, topic, local) is not None)
        of = f"what is published to {topic} in {own} reaches {', '.join(reached) or 'no other cluster'}"
        if isinstance(wait_for, int):
            if not 1 <= wait_for <= len(reached):
                raise UsageError(f"wait_for {wait_for}: {of}. Nothing was published.")
            return cls(tables, config, topic, reached, wait_for)
        if wait_for == "in-sync":
            every = cls(tables, config, topic, reached)
            lacking = every.lacking(_as_of(now_us() - IN_SYNC_US, before, tables.log(topic), producer))
            return cls(tables, config, topic, tuple(name for name in reached if not lacking.get(name, 1)))
        names = (wait_for,) if isinstance(wait_for, str) else tuple(dict.fromkeys(wait_for))
        for name in names:
            config.cluster(name)
            if name not in reached:
                raise UsageError(f"wait_for {name}: {of}. Nothing was published.")
        return cls(tables, config, topic, names)

    def wait(self, ledgers: Ledgers, timeout_s: float = WAIT_S, stop: threading.Event | None = None) -> dict[str, float]:
        """Until so many of them hold all that `ledgers` do, and is for them and has not expired. Returns after how many seconds each
        was seen to. Raises NotReplicatedError once the time is over, or `stop` is set: what was published stays so."""
        began, held, stop = time.monotonic(), dict[str, float](), stop or threading.Event()
        needed = len(self.regions) if self.least is None else self.least
        while True:
            looked = time.monotonic()
            lacking = self.lacking(ledgers, among=[name for name in self.regions if name not in held])
            held |= {name: time.monotonic() - began for name, count in lacking.items() if count == 0}
            if len(held) >= needed:
                return held
            now = time.monotonic()
            if now - began >= timeout_s or stop.is_set():
                told = ", ".join(
                    f"{name} cannot be read" if count is None else f"{name} lacks {counted(count, 'message')}"
                    for name, count in lacking.items()
                    if count != 0
                )
                raise NotReplicatedError(
                    f"{self.topic}: what was published is in {self.tables.cluster.name}, and after {now - began:.1f} s not yet where it was "
                    f"waited for: {told}. It is not to be published again: its links bring it, see `geo links status`."
                )
            stop.wait(min(_MOST_PAUSE_S, max(_LEAST_PAUSE_S, 2 * (now - looked)), max(0.0, began + timeout_s - now)))

    def lacking(self, ledgers: Ledgers, among: Sequence[str] | None = None) -> dict[str, int | None]:
        """Count the messages of the ledgers that each region still lacks.

        None: the region cannot be read now.
        """
        ttl_s = self.config.policy(self.topic).message_ttl_s
        living_us = 0 if ttl_s is None else now_us() - ttl_s * 1_000_000
        due: dict[str, dict[int, int]] = {}
        oldest_us = now_us()
        for name in self.regions if among is None else among:
            for_it = [
                ledger
                for key, ledger in ledgers.items()
                if (key.replicate_to is None or name in key.replicate_to) and ledger.end >= 0 and ledger.time_us >= living_us
            ]
            due[name] = {ledger.ledger_id: ledger.end for ledger in for_it}
            oldest_us = min([oldest_us, *(ledger.time_us for ledger in for_it)])
        since = from_us(oldest_us).date()
        asked = {
            name: partial(ends_in, self.tables, self.config.cluster(name), self.topic, tuple(ends), since)
            for name, ends in due.items()
            if ends
        }
        found: dict[str, int | None] = dict.fromkeys(due, 0)
        for name, answer in ask_all(asked, _ANSWER_S).items():
            if answer.exception() is not None:
                found[name] = None
                continue
            there = answer.result()
            found[name] = sum(max(0, end - there.get(ledger, -1)) for ledger, end in due[name].items())
        return found


def _as_of(time_us: int, ledgers: Ledgers, log: Table, producer: str) -> Ledgers:
    """Return how far the ledgers of a producer reached then, by the commits of its log."""
    newest, ends = log.latest_version(), dict[LedgerKey, int]()
    for commit in log.commits(max(0, newest - _COMMITS), newest, only=(RECORD_KEY,)):
        batch = Batch.decode(commit.user_metadata)
        if batch is None or batch.producer != producer or batch.publish_time_us <= time_us:
            continue
        for span in batch.spans:
            if span.key in ledgers and span.ledger_id == ledgers[span.key].ledger_id:
                ends.setdefault(span.key, span.first - 1)
    return {key: replace(ledger, end=ends.get(key, ledger.end)) for key, ledger in ledgers.items()}
