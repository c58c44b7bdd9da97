"""`geo balance`."""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from typing import Any

from geo.cli.arguments import Verbs, from_1_to, up_to
from geo.cli.output import Output
from geo.config.placement import MIB, SHEDDERS, STRATEGIES, BalancerSettings, parse_setting
from geo.errors import UsageError
from geo.fleet.placement.manager import manager_of
from geo.fleet.simulated_cluster import SimulatedCluster, generated, recorded
from geo.fleet.simulator import BALANCED, Phase, simulate
from geo.text import counted

_CHANGE = 0.1
"""The share of topics that trade their loads at a change."""

_SHOWN = 10
"""So many heavy topics are named to people; JSON has all."""

_LARGEST = 10_000_000


def add_balance(verbs: Verbs, does: str) -> None:
    nouns = verbs.add_noun("balance", does)
    does = "decide minute by minute for a cluster that is not there; no broker runs, and no table is read"
    p = nouns.add("simulate", does, run_simulate, config=False)
    number = from_1_to(_LARGEST, f"a number from 1 to {_LARGEST:,}")
    does = (
        "recorded load, a JSON object: for each broker cpu, direct_memory, bandwidth_in, bandwidth_out as [used, limit], and "
        "bundles, for each msg_rate_in, msg_rate_out, throughput_in, throughput_out, topics"
    )
    p.add_argument("--reports", metavar="FILE", help=does)
    p.add_argument("--topics", type=number, metavar="N", help="generated load: so many topics")
    p.add_argument("--brokers", type=number, metavar="N", help="of generated load")
    p.add_argument("--bundles", type=number, metavar="N", help="of generated load")
    does = "of generated load: the topic of rank k has 1/k^S of the first one's (default: %(default)s)"
    p.add_argument("--zipf", type=up_to(10, "a number from 0 to 10"), default=1.0, metavar="S", help=does)
    p.add_argument("--minutes", type=number, default=120, metavar="N", help="as many decisions (default: %(default)s)")
    does = f"how often {_CHANGE:.0%}% of the topics of generated load trade their loads, for as many minutes again (default: %(default)s)"
    p.add_argument("--changes", type=int, choices=range(10), default=0, metavar="N", help=does)
    p.add_argument("--strategy", choices=STRATEGIES, default=STRATEGIES[0], help="who gets a bundle (default: %(default)s)")
    p.add_argument("--shedder", choices=SHEDDERS, default=SHEDDERS[0], help="who gives one up (default: %(default)s)")
    p.add_argument("--compare", action="store_true", help="every strategy with every shedder, on the same load")
    does = "a setting of the load balancer, named as Pulsar's without loadBalancer and Percentage: broker_threshold_shedder=0.05"
    p.add_argument("--set", dest="settings", action="append", default=[], metavar="NAME=VALUE", help=does)
    p.add_argument("--seed", type=int, default=1, metavar="N", help="of all that is drawn (default: %(default)s)")
    p.add_argument("--plot", metavar="FILE", help="draw the heaviest broker by the minute; needs matplotlib (delta-geo[demo])")


def run_simulate(args: argparse.Namespace, output: Output) -> int:
    sizes = (args.topics, args.brokers, args.bundles)
    if (args.reports is None) == (sizes == (None, None, None)) or (args.reports is None and None in sizes):
        raise UsageError("give --reports FILE, or all of --topics, --brokers and --bundles")
    if args.reports is not None and args.changes:
        raise UsageError("--changes is of generated load; of recorded load no topic is known")
    if args.plot is not None:
        _pyplot()  # missing, it is said before and not after the work
    settings = _settings(args.settings)
    pairs = (
        [(strategy, shedder) for strategy in STRATEGIES for shedder in SHEDDERS]
        if args.compare
        else [(args.strategy, args.shedder)]
    )
    cluster = _cluster(args)
    heavy = cluster.heavy_topics()
    mean = sum(part.load.throughput for part in cluster.parts.values()) / len(cluster.limits)
    said = {
        "topics": args.topics or sum(part.load.topics for part in cluster.parts.values()),
        "bundles": len(cluster.parts),
        "brokers": len(cluster.limits),
        "mean_bytes_per_s": mean,
        "heavy_topics": heavy,
    }
    output.text(*_head(said, args))
    runs = []
    for number, (strategy, shedder) in enumerate(pairs):
        cluster = _cluster(args) if number else cluster
        chance = random.Random(args.seed)  # noqa: S311  # a seed that repeats is what is wanted
        manager = manager_of(strategy, shedder, settings, chance.choice)
        phases = simulate(
            cluster, manager, chance, minutes=args.minutes, changes=args.changes, share=_CHANGE, timer=time.process_time
        )
        runs.append((strategy, shedder, phases))
    output.table(_COLUMNS, [row for run in runs for row in _rows(*run)])
    told = [{"strategy": one, "shedder": other, "phases": [phase.to_json() for phase in phases]} for one, other, phases in runs]
    output.data({**said, "runs": told})
    if args.plot is not None:
        _plot(args.plot, runs)
    return 0


_COLUMNS = (
    "strategy", "shedder", "load", "balanced after", "heaviest/larger", "heaviest/mean", "without heavy", "moves", "moves/h at end", "splits",
    "decision", "longest",
)  # fmt: skip


def _cluster(args: argparse.Namespace) -> SimulatedCluster:
    if args.reports is not None:
        return recorded(args.reports)
    return generated(args.topics, args.brokers, args.bundles, args.zipf, random.Random(args.seed))  # noqa: S311  # as above


def _head(said: dict[str, Any], args: argparse.Namespace) -> list[str]:
    skew = f", Zipf s = {args.zipf}" if args.reports is None else ""
    size = f"{counted(said['topics'], 'topic')} in {counted(said['bundles'], 'bundle')} on {counted(said['brokers'], 'broker')}"
    lines = [f"{size}{skew}; a broker's mean is {said['mean_bytes_per_s'] / MIB:,.1f} MiB/s"]
    heavy: dict[str, float] = said["heavy_topics"]
    if heavy:
        named = ", ".join(f"{name} ({load / said['mean_bytes_per_s']:.1f} x)" for name, load in list(heavy.items())[:_SHOWN])
        more = f" and {len(heavy) - _SHOWN:,} more" if len(heavy) > _SHOWN else ""
        lines.append(f"heavier than a broker's mean, so that no placement evens them out: {named}{more}")
    lines.append(
        f"balanced: the heaviest broker is below {BALANCED} times the larger of the mean and the heaviest topic, and all bundles are owned"
    )
    return lines


def _rows(strategy: str, shedder: str, phases: Sequence[Phase]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for number, found in enumerate(phase.to_json() for phase in phases):
        after = found["minutes_to_balance"]
        rows.append((
            strategy, shedder, "changed" if number else "first", "not" if after is None else counted(after, "minute"),
            f"{found['ratio']:.2f}", f"{found['spread']:.2f}", f"{found['spread_without_heavy']:.2f}", f"{found['moves']:,}",
            f"{found['moves_per_hour_at_end']:,.0f}", f"{found['splits']:,}",
            f"{found['decision_s_median']:.3f} s", f"{found['decision_s_max']:.3f} s",
        ))  # fmt: skip
    return rows


def _settings(given: Sequence[str]) -> BalancerSettings:
    """Pulsar's defaults with those that are given as NAME=VALUE. Raises UsageError."""
    chosen: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            chosen[name] = parse_setting(name, value)
        except UsageError as error:
            raise UsageError(f"--set {error}") from None
    return BalancerSettings(**chosen)


def _pyplot() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise UsageError("--plot needs matplotlib: pip install 'delta-geo[demo]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _plot(path: str, runs: Sequence[tuple[str, str, Sequence[Phase]]]) -> None:
    """The heaviest broker over the mean, and moves, by the minute."""
    plt = _pyplot()
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(12, 7), layout="constrained")
    for number, (strategy, shedder, phases) in enumerate(runs):
        minutes, color = [minute for phase in phases for minute in phase.minutes], plt.get_cmap("tab20")(number)
        above.plot([minute.ratio for minute in minutes], color=color, label=f"{strategy}, {shedder}")
        below.plot([minute.moves for minute in minutes], color=color)
    above.axhline(BALANCED, color="grey", linewidth=0.8, linestyle="--")
    above.set_ylabel("heaviest broker / larger of\nmean and heaviest topic")
    below.set_ylabel("bundles moved")
    below.set_xlabel("minute")
    figure.legend(loc="outside right upper", fontsize="small")
    figure.savefig(path)
    plt.close(figure)
