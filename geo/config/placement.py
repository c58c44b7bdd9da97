"""Settings by which several brokers of a cluster share its topics: the section `placement` of the configuration. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from geo.config.yaml_nodes import check_within, suggestion
from geo.errors import UsageError
from geo.text import show

MIB = 1024 * 1024

BROKER_TIMEOUT_S = 30
LEAST_BROKER_TIMEOUT_S, MOST_BROKER_TIMEOUT_S = 3, 3600

BUNDLES, MOST_BUNDLES = 4, 1_000
"""Bundles of a namespace (Pulsar's defaultNumberOfNamespaceBundles)."""

STRATEGIES = ("LeastLongTermMessageRate", "LeastResourceUsageWithWeight", "RoundRobin", "AvgShedder")
SHEDDERS = ("ThresholdShedder", "OverloadShedder", "UniformLoadShedder", "AvgShedder")
"""Names of shedders, Pulsar's default first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerSettings:
    """Settings of the load balancer. Names and defaults are those of Pulsar's ServiceConfiguration without `loadBalancer`, in snake case. A
    `Percentage` there is a fraction here, a limit in MB is one in bytes, minutes and milliseconds are seconds.

    Raises UsageError of a fraction outside 0 to 1, and of a number of samples below 1. Also of any other number below 0 (but for -1: no limit).
    """

    cpu_resource_weight: float = 1.0
    direct_memory_resource_weight: float = 0.0
    bandwidth_in_resource_weight: float = 1.0
    bandwidth_out_resource_weight: float = 1.0
    history_resource: float = 0.9
    """Part of a broker's averaged usage that stays when a new one comes."""
    num_short_samples: int = 10
    num_long_samples: int = 1_000
    report_update_threshold: float = 0.10
    report_update_min_interval_s: float = 5.0
    report_update_max_interval_s: float = 15 * 60.0

    broker_overloaded_threshold: float = 0.85
    broker_max_topics: int = 50_000
    distribute_bundles_evenly_enabled: bool = True
    prefer_later_versions: bool = False
    """During a rolling upgrade bundles go to brokers of the latest version only."""
    average_resource_usage_difference_threshold: float = 0.10

    shedding_enabled: bool = True
    shedding_interval_s: float = 60.0
    shedding_grace_period_s: float = 30 * 60.0
    """A bundle that was unloaded is not unloaded again for so long."""
    broker_threshold_shedder: float = 0.10
    lower_boundary_shedding_enabled: bool = False
    bundle_unload_min_throughput_threshold: float = 0.0
    """Pulsar has 10 MB: what a broker there has much more of. One here is at the end of its processor with a megabyte per second."""
    msg_rate_difference_shedder_threshold: float = 0.50
    msg_throughput_multiplier_difference_shedder_threshold: float = 4.0
    min_unload_message: float = 1_000.0
    min_unload_message_throughput: float = 1.0 * MIB
    max_unload: float = 0.2
    max_unload_bundle_num_per_shedding: int = -1
    avg_shedder_low_threshold: float = 0.15
    avg_shedder_high_threshold: float = 0.40
    avg_shedder_hit_count_low_threshold: int = 8
    avg_shedder_hit_count_high_threshold: int = 2

    auto_bundle_split_enabled: bool = True
    auto_unload_split_bundles_enabled: bool = True
    namespace_bundle_max_topics: int = 1_000
    namespace_bundle_max_msg_rate: float = 30_000.0
    namespace_bundle_max_bandwidth: float = 100.0 * MIB
    namespace_maximum_bundles: int = 128
    flow_or_qps_difference_threshold: float = 0.10

    failure_domains_enabled: bool = False
    override_broker_nic_speed_gbps: float = 0.0
    """Speed of the network of each broker's host; 0: what the host says, and where it says nothing bandwidth is not looked at."""

    def __post_init__(self) -> None:
        for name in _FRACTIONS:
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} is {getattr(self, name)}; expected: a fraction from 0 to 1")
        for name, least in _LEAST.items():
            if not getattr(self, name) >= least:
                raise UsageError(f"{name} is {getattr(self, name)}; expected: {least} or more")


_FRACTIONS = (
    "history_resource",
    "report_update_threshold",
    "broker_overloaded_threshold",
    "average_resource_usage_difference_threshold",
    "broker_threshold_shedder",
    "max_unload",
    "avg_shedder_low_threshold",
    "avg_shedder_high_threshold",
    "flow_or_qps_difference_threshold",
)
_LEAST = {field.name: 0 for field in fields(BalancerSettings) if field.type in ("int", "float")} | {
    "num_short_samples": 1,
    "num_long_samples": 1,
    "max_unload_bundle_num_per_shedding": -1,
}
"""Least value of each number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`broker_timeout_s`: a broker that says nothing for so long is taken for dead, and its bundles go to others. `bundles`: how many a
    namespace has at first. `strategy` says who gets a bundle, `shedder` who gives one up. Raises UsageError if impossible."""

    broker_timeout_s: int = BROKER_TIMEOUT_S
    bundles: int = BUNDLES
    strategy: str = STRATEGIES[0]
    shedder: str = SHEDDERS[0]
    settings: BalancerSettings = BalancerSettings()

    def __post_init__(self) -> None:
        timeout_s = self.broker_timeout_s
        check_within("placement: broker_timeout", timeout_s, LEAST_BROKER_TIMEOUT_S, MOST_BROKER_TIMEOUT_S, " s")
        check_within("placement: bundles", self.bundles, 1, MOST_BUNDLES)
        for what, name, known in (("strategy", self.strategy, STRATEGIES), ("shedder", self.shedder, SHEDDERS)):
            if name not in known:
                raise UsageError(f"{what} {show(name)} is unknown; there are {', '.join(known)}{suggestion(name, known)}")


SETTINGS: Mapping[str, type] = {field.name: type(field.default) for field in fields(BalancerSettings)}
"""Settings that can be set by name, and the type of each."""


def parse_setting(name: str, text: str) -> Any:
    """The value of a setting from its text. Raises UsageError of a name that none has, and of another type."""
    if name not in SETTINGS:
        raise UsageError(f"there is no setting {show(name)}; there are {', '.join(SETTINGS)}{suggestion(name, SETTINGS)}")
    kind = SETTINGS[name]
    try:
        return {"true": True, "false": False}[text] if kind is bool else kind(text)
    except (ValueError, KeyError):
        expected = "true or false" if kind is bool else "a whole number" if kind is int else "a number"
        raise UsageError(f"{name} {show(text)}; expected: {expected}") from None
