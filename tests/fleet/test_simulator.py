"""A simulated cluster: its load is what was asked for, and the manager evens it out."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from geo.errors import UsageError
from geo.fleet.placement.bundles import bundle_hash, bundle_name, even, namespace_of, parse_bundle
from geo.fleet.placement.load_data import BalancerSettings
from geo.fleet.placement.manager import Decided, Split, Unload, manager_of
from geo.fleet.simulated_cluster import SimulatedCluster, generated, recorded
from geo.fleet.simulator import BALANCED, Minute, Phase, simulate

SETTINGS = BalancerSettings()


def _cluster(zipf: float = 1.0) -> SimulatedCluster:
    return generated(2_000, 10, 200, zipf, Random(1))


def _total(cluster: SimulatedCluster) -> float:
    return sum(part.load.throughput for part in cluster.parts.values())


@pytest.mark.slow
def test_every_topic_is_in_the_bundle_of_its_hash() -> None:
    cluster = _cluster()
    assert len(cluster.parts) == 200
    assert Counter(map(namespace_of, cluster.parts)) == {"simulated/n0": 67, "simulated/n1": 67, "simulated/n2": 66}
    for bundle, part in cluster.parts.items():
        namespace, found = parse_bundle(bundle)
        for topic in part.topics or ():
            name = cluster.name_of(topic)
            assert name.startswith(f"persistent://{namespace}/")
            assert even(66 if namespace.endswith("2") else 67).bundle_at(bundle_hash(name)) == found
    assert sum(part.load.topics for part in cluster.parts.values()) == 2_000


def test_the_load_is_zipfs_and_a_broker_bears_twice_the_mean() -> None:
    cluster = _cluster()
    rates = sorted(cluster.rates, reverse=True)
    assert [rates[0] / rates[rank - 1] for rank in (2, 10, 2_000)] == pytest.approx([2, 10, 2_000])
    cluster.do(Decided(assignments=dict.fromkeys(cluster.parts, "broker-0")))
    assert cluster.reports()["broker-0"].max_usage(SETTINGS) == pytest.approx(5), "all of ten brokers' on one"


def test_what_is_decided_is_done_and_only_what_moves_counts() -> None:
    cluster = _cluster()
    first, second, *_ = at_first = list(cluster.parts)
    before = _total(cluster)
    assert cluster.do(Decided(assignments={first: "broker-0", second: "broker-0"})) == 0
    decision = Decided(splits=[Split(first, "broker-0", unload=True)], unloads=[Unload(second, "broker-0", "broker-1")])
    assert cluster.do(decision) == 1
    parts = [bundle for bundle in cluster.parts if bundle not in at_first]
    assert len(parts) == 2
    assert set(parts) <= set(cluster.unassigned())
    assert cluster.do(Decided(assignments={part: f"broker-{at}" for at, part in enumerate(parts)})) == 1
    assert cluster.do(Decided(splits=[Split(second, "broker-1", unload=False)])) == 0
    owners = [cluster.owners[bundle] for bundle in cluster.parts if bundle in cluster.owners]
    assert owners == ["broker-0", "broker-1", "broker-1", "broker-1"]
    assert _total(cluster) == pytest.approx(before)


def test_a_change_leaves_the_loads_and_moves_them_to_other_topics() -> None:
    cluster = _cluster()
    before, loads = list(cluster.rates), {bundle: part.load for bundle, part in cluster.parts.items()}
    cluster.change(Random(2), 0.1)
    assert sorted(cluster.rates) == sorted(before)
    assert 150 < sum(rate != old for rate, old in zip(cluster.rates, before, strict=True)) <= 200
    assert {bundle: part.load for bundle, part in cluster.parts.items()} != loads


@pytest.mark.slow
@pytest.mark.parametrize("zipf", [0.5, 1.0])
def test_the_defaults_balance_a_cluster_and_then_leave_it_alone(zipf: float) -> None:
    cluster, random = _cluster(zipf), Random(3)
    manager = manager_of("LeastLongTermMessageRate", "ThresholdShedder", SETTINGS, random.choice)
    first, changed = simulate(cluster, manager, random, minutes=120, changes=1, share=0.1, timer=lambda: 0.0)
    for phase in (first, changed):
        assert phase.minutes_to_balance is not None
        assert phase.minutes[-1].ratio < BALANCED
        assert sum(minute.moves for minute in phase.minutes[-30:]) == 0
    assert set(cluster.heavy_topics()) == (
        {cluster.name_of(max(range(2_000), key=cluster.rates.__getitem__))} if zipf == 1 else set()
    )


@pytest.mark.parametrize("strategy", ["LeastResourceUsageWithWeight", "RoundRobin", "AvgShedder"])
@pytest.mark.parametrize("shedder", ["OverloadShedder", "UniformLoadShedder", "AvgShedder"])
def test_with_any_strategy_and_shedder_every_bundle_is_owned(strategy: str, shedder: str) -> None:
    cluster, random = _cluster(), Random(4)
    before = _total(cluster)
    simulate(
        cluster, manager_of(strategy, shedder, SETTINGS, random.choice), random, minutes=20, changes=0, share=0, timer=lambda: 0.0
    )
    assert cluster.unassigned() == []
    assert _total(cluster) == pytest.approx(before)
    assert sum(cluster.throughputs().values()) == pytest.approx(before)


def _minute(heaviest: float, unassigned: int = 0) -> Minute:
    return Minute(heaviest, heaviest, 1.0, 0.0, 1.1, unassigned, moves=2, splits=1, decision_s=0.5)


def test_balanced_is_when_it_stays_so() -> None:
    assert Phase([_minute(2.0), _minute(1.4), _minute(1.5), _minute(1.4)]).minutes_to_balance == 3, "1.1 is larger than the mean"
    assert Phase([_minute(1.0), _minute(1.0, unassigned=1), _minute(1.0)]).minutes_to_balance == 2
    assert Phase([_minute(1.0), _minute(2.0)]).minutes_to_balance is None
    found = Phase([_minute(1.0)] * 30).to_json()
    assert (found["moves"], found["moves_per_hour_at_end"], found["splits"]) == (60, 120, 30)


def _report(cpu: float, **throughputs: float) -> dict[str, Any]:
    bundles = {
        f"t/n/{name}": {"msg_rate_in": 1, "msg_rate_out": 1, "throughput_in": size, "throughput_out": 0, "topics": 3}
        for name, size in throughputs.items()
    }
    none = {resource: [0, 100] for resource in ("direct_memory", "bandwidth_in", "bandwidth_out")}
    return {"cpu": [cpu, 100], **none, "bundles": bundles}


_HALVES = {"0x00000000_0x80000000": 3e8, "0x80000000_0xffffffff": 1e8}


def test_recorded_load_is_reported_as_it_was_and_moves_with_its_bundles(tmp_path: Path) -> None:
    path = tmp_path / "reports.json"
    path.write_text(json.dumps({"a": _report(80, **_HALVES), "b": _report(10)}))
    cluster = recorded(str(path))
    usages = {broker: load.max_usage(SETTINGS) for broker, load in cluster.reports().items()}
    assert usages == pytest.approx({"a": 0.8, "b": 0.1})
    moved = "t/n/0x00000000_0x80000000"
    cluster.do(Decided(unloads=[Unload(moved, "a", "b")], splits=[Split("t/n/0x80000000_0xffffffff", "a", unload=False)]))
    usages = {broker: load.max_usage(SETTINGS) for broker, load in cluster.reports().items()}
    assert usages == pytest.approx({"a": 0.2, "b": 0.7})
    assert {bundle: load.topics for bundle, load in cluster.reports()["a"].bundles.items()} == {
        "t/n/0x80000000_0xbfffffff": 1,
        "t/n/0xbfffffff_0xffffffff": 2,
    }


def test_a_broker_at_the_end_of_its_processor_is_relieved_by_the_defaults_whatever_its_throughput(tmp_path: Path) -> None:
    """A megabyte per second in all, which takes all of a broker's cores. Once, though its average says for minutes that it is busy."""
    parts = iter([bundle_name("", part)[1:] for part in even(32).ranges])
    held = {"a": (100, 20), "b": (5, 4), "c": (30, 4), "d": (30, 4)}
    reports = {
        broker: _report(cpu, **dict.fromkeys(islice(parts, count), 10000.0 * cpu / count))
        for broker, (cpu, count) in held.items()
    }
    path = tmp_path / "reports.json"
    path.write_text(json.dumps(reports))
    cluster, random = recorded(str(path)), Random(5)
    manager = manager_of("LeastLongTermMessageRate", "ThresholdShedder", SETTINGS, random.choice)
    (phase,) = simulate(cluster, manager, random, minutes=60, changes=0, share=0, timer=lambda: 0.0)
    usages = {broker: load.max_usage(SETTINGS) for broker, load in cluster.reports().items()}
    assert usages["a"] == pytest.approx(0.45)
    assert max(usages.values()) == pytest.approx(0.45)
    assert [(at, minute.moves) for at, minute in enumerate(phase.minutes) if minute.moves] == [(2, 11)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"a": 1}',
        '{"a": {"cpu": [1, 2]}}',
        json.dumps({"a": _report(1, x=1)}),
        json.dumps({n: _report(1, **_HALVES) for n in "ab"}),
    ],
)
def test_a_file_that_has_no_reports_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "reports.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="reports"):
        recorded(str(path))
    with pytest.raises(UsageError, match="no load reports: FileNotFoundError"):
        recorded(str(tmp_path / "none"))
