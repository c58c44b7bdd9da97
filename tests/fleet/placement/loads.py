"""Reports as short as tests can have them."""

from __future__ import annotations

from collections.abc import Mapping

from geo.fleet.placement.load_data import MIB, BrokerLoad, BundleLoad, Usage

IDLE = Usage(0, 100)


def bundle(rate: float = 0.0, mib: float = 0.0, topics: int = 1) -> BundleLoad:
    """Messages per second and MiB per second, half in and half out."""
    return BundleLoad(rate / 2, rate / 2, mib * MIB / 2, mib * MIB / 2, topics)


def broker(usage: float = 0.0, bundles: Mapping[str, BundleLoad] | None = None) -> BrokerLoad:
    """A broker that uses this fraction of its processor, and nothing else."""
    return BrokerLoad(Usage(usage * 100, 100), IDLE, IDLE, IDLE, bundles or {})


def even_broker(usage: float, count: int, mib: float, name: str = "b") -> BrokerLoad:
    """With `count` bundles of which each has as much throughput."""
    return broker(usage, {f"{name}{number}": bundle(mib=mib) for number in range(count)})
