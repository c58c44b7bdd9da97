"""PIP-33 under any schedule: clusters of every shape, links that lag, end and begin anew, logs that are filled in, begun at their end or
put back, drivers that hear and write as late as can be, and die.

`pip33.py` checks as things are decided: no update lets a cursor pass a message that was routed to both and is not finished; none moves
one past what nobody has processed; and a controller says the same from its journal, from its kept state and in any batches. After every
step here: the cut of every snapshot in a cache, and the bounds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from geo.subscription.controller import Settings
from tests.model.pip33 import Cluster, Steps, World

SHAPES: dict[str, dict[str, tuple[str, ...]]] = {
    "pair": {"a->b": (), "b->a": ()},
    "mesh": {f"{x}->{y}": () for x in "abc" for y in "abc" if x != y},
    "hub": {"a->h": (), "h->a": ("h", "b"), "b->h": (), "h->b": ("h", "a")},
    "hub and a side way": {"a->h": (), "h->a": ("h", "b"), "b->h": (), "h->b": ("h",), "a->b": ()},
    "ring": {"a->b": ("a", "c"), "b->c": ("b", "a"), "c->a": ("c", "b")},
    "a third that only sends": {"a->b": (), "b->a": (), "c->a": ()},
    "a third that sends to both": {"a->b": (), "b->a": (), "c->a": (), "c->b": ()},
    "a third that only listens": {"a->b": (), "b->a": (), "a->c": (), "b->c": ()},
    "a line": {"a->b": (), "b->a": (), "b->c": (), "c->b": ()},
    "one-way": {"a->b": ()},
}
SETTLED = {"pair", "mesh", "hub", "hub and a side way", "ring", "a third that only sends", "a third that only listens", "a line"}
"""Where a and b get in step once everything runs: they reach each other, and whoever's messages are in both can be asked."""

_SETTINGS = Settings(frequency_s=10, timeout_s=30, max_snapshots=4)
_FEW = st.sampled_from([1, 1, 2, 5, 1_000])


class Machine(RuleBasedStateMachine):
    def __init__(self, shape: str, *, inherit: bool = True, put_back: bool = True) -> None:
        super().__init__()
        self.shape, self.puts_back = shape, put_back
        self.world = World(SHAPES[shape], _SETTINGS, inherit=inherit)
        self.work: dict[str, Steps] = {}
        """Reconciles and backfills under way, by link."""
        self.world.subscribe("a", "s")

    def _cluster(self, data: Any) -> Cluster:
        return self.world.clusters[data.draw(st.sampled_from(sorted(self.world.clusters)))]

    def _link(self, data: Any) -> str:
        name: str = data.draw(st.sampled_from(sorted(self.world.links)))
        return name

    @rule(data=st.data(), count=st.integers(1, 2), addressed=st.booleans())
    def publish(self, data: Any, count: int, addressed: bool) -> None:
        name = self._cluster(data).name
        others = sorted(other for other in self.world.clusters if self.world.way(name, other))
        to = data.draw(st.lists(st.sampled_from(others), unique=True)) if addressed and others else None
        self.world.publish(name, count, to)

    @rule(data=st.data(), most=_FEW, attempts=st.sampled_from([1, 1, 2]))
    def deliver(self, data: Any, most: int, attempts: int) -> None:
        self.world.deliver(self._link(data), most, attempts=attempts)

    @rule(data=st.data())
    def deliver_and_run_all(self, data: Any) -> None:
        for link in sorted(self.world.links):
            self.world.deliver(link)
        for name in self.world.clusters:
            self.world.run(name)

    @rule(data=st.data(), up=st.booleans())
    def partition(self, data: Any, up: bool) -> None:
        self.world.links[self._link(data)].up = up

    @rule(data=st.data(), seconds=st.sampled_from([0, 5, 10, 10, 31]))
    def tick(self, data: Any, seconds: int) -> None:
        self.world.now += seconds
        self.world.tick(self._cluster(data).name)

    @rule(data=st.data())
    def tail(self, data: Any) -> None:
        self.world.tail(self._cluster(data).name)

    @rule(data=st.data(), most=_FEW, writes=st.booleans())
    def hear(self, data: Any, most: int, writes: bool) -> None:
        name = self._cluster(data).name
        self.world.hear(name, most)
        if writes:
            self.world.write(name)

    @rule(data=st.data())
    def run(self, data: Any) -> None:
        self.world.run(self._cluster(data).name)

    @rule(data=st.data())
    def crash(self, data: Any) -> None:
        self.world.crash(self._cluster(data).name)

    @rule(data=st.data(), most=_FEW)
    def read(self, data: Any, most: int) -> None:
        cluster = self._cluster(data)
        if "s" in cluster.readers:
            self.world.read(cluster.name, "s", most)

    @rule(data=st.data())
    def fail_over(self, data: Any) -> None:
        """Or begin anew where one has read before."""
        self.world.subscribe(self._cluster(data).name, "s")

    @rule(data=st.data())
    def unsubscribe(self, data: Any) -> None:
        self.world.unsubscribe(self._cluster(data).name, "s")

    @rule(data=st.data(), verb=st.sampled_from(["reconcile", "backfill"]))
    def begin(self, data: Any, verb: str) -> None:
        """What was under way on the link is left where it is."""
        link = self._link(data)
        self.work[link] = getattr(self.world, verb)(link)

    @precondition(lambda self: self.work)
    @rule(data=st.data(), steps=_FEW)
    def go_on(self, data: Any, steps: int) -> None:
        link = data.draw(st.sampled_from(sorted(self.work)))
        for _ in range(steps):
            if next(self.work[link], "end") == "end":
                del self.work[link]
                return

    @rule(data=st.data())
    def reset(self, data: Any) -> None:
        link = self._link(data)
        self.work.pop(link, None)
        self.world.reset_to_latest(link)

    @precondition(lambda self: self.puts_back)
    @rule(data=st.data())
    def put_back(self, data: Any) -> None:
        cluster = self._cluster(data)
        self.work = {}
        self.world.put_back(cluster.name, data.draw(st.integers(max(0, cluster.newest - 5), cluster.newest)))

    @invariant()
    def every_cut_holds_and_nothing_grows(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Once all is up and each work has ended, a and b get in step, and then there is silence."""
        world = self.world
        for link in world.links.values():
            link.up = True
        for name, cluster in world.clusters.items():
            if cluster.readers.get("s") is not None:
                world.unsubscribe(name, "s")
        for link_name in world.links:
            for verb in (world.backfill, world.reconcile):
                for _ in verb(link_name):
                    pass
        world.subscribe("a", "s")
        world.publish("b")
        for _ in range(6):
            self._settle()
        world.read("a", "s")
        for _ in range(6):
            self._settle()
        before = {name: cluster.newest for name, cluster in world.clusters.items()}
        self._settle()
        assert before == {name: cluster.newest for name, cluster in world.clusters.items()}, "an idle topic gets no markers"
        world.check()
        if self.shape in SETTLED:
            last = world.clusters["b"].newest_message
            assert last is not None
            assert (world.clusters["b"].truth.start("s") or 0) > last, "all was finished in a, and b would repeat some"

    def _settle(self) -> None:
        self.world.now += 31
        for name in self.world.clusters:
            self.world.tick(name)
        for _ in range(12):
            for name in self.world.clusters:
                self.world.run(name)
            for link in self.world.links:
                self.world.deliver(link)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_no_schedule_makes_a_cursor_pass_what_is_unprocessed(shape: str) -> None:
    run_state_machine_as_test(
        partial(Machine, shape),  # type: ignore[arg-type]  # it is called, no more
        settings=settings(max_examples=8, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)),
    )
