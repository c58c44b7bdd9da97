"""The load of this broker, as it reports it: what it replicated for which topic, and what its processes take of their host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from math import inf

from geo.faults import Tried
from geo.fleet.host_usage import HostUsage, nic_bytes_per_s
from geo.fleet.placement.load_data import BrokerLoad, PerSecond, Usage
from geo.journal.cluster import ClusterTables
from geo.names import Topic

SIZE_OF_COMMITS, SIZE_S = 5, 600.0
"""Newest commits of a log from which the size of a message is taken, and seconds after which it is looked up again."""

SIZES, REMOTE_SIZES = 100, 1
"""Topics whose size is looked up for a report. Elsewhere than on a local disk each takes a second."""


class LoadMeter:
    """Measures the load since the last time."""

    def __init__(self, tables: ClusterTables, *, is_local: bool) -> None:
        self._tables, self._most = tables, SIZES if is_local else REMOTE_SIZES
        self._host, self._rates = HostUsage(), PerSecond()
        self._sizes: dict[str, tuple[float, float]] = {}
        """Bytes of a message by topic, and when that was looked up."""
        self._lookups = 0

    def measure(
        self, messages: Mapping[str, int], bundles: Iterable[str], bundle_of: Callable[[str], str], nic_gbps: float, now: float
    ) -> BrokerLoad:
        """`messages`: how many each topic got so far, of all for which something is done. `nic_gbps`: as `nic_bytes_per_s`."""
        self._lookups = 0
        self._sizes = {topic: known for topic, known in self._sizes.items() if topic in messages}
        found = self._rates.sample(messages, bundles, bundle_of, self._size_of, now)
        cpu, memory = self._host.sample()
        carries = nic_bytes_per_s(nic_gbps)
        size = sum(load.throughput_in for load in found.values())
        # What comes in a burst after a pause was not carried in this interval alone; nobody carries more than there is.
        return BrokerLoad(cpu, memory, Usage(min(size, carries), carries), Usage(0.0, carries), found)

    def _size_of(self, topic: str) -> float:
        """Bytes of a message of a topic, by the newest commits of its log. The mean of those known where too many were looked up already, or they
        cannot be read now.
        """
        size, at = self._sizes.get(topic, (self._mean_size(), -inf))
        if self._lookups >= self._most or time.monotonic() - at < SIZE_S:
            return size
        self._lookups += 1
        with Tried() as tried:
            table = self._tables.log(Topic.parse(topic))
            newest = table.latest_version()
            commits = list(table.commits(max(0, newest - SIZE_OF_COMMITS + 1), newest))
        if tried.fault is not None:
            return size
        counted = [commit for commit in commits if commit.rows is not None]
        if rows := sum(commit.rows or 0 for commit in counted):
            size = sum(commit.bytes for commit in counted) / rows
            self._sizes[topic] = size, time.monotonic()
        return size

    def _mean_size(self) -> float:
        return sum(size for size, _ in self._sizes.values()) / len(self._sizes) if self._sizes else 0.0
