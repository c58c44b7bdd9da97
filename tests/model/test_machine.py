"""Links of every shape, producers and consumers under any interleaving: stopped anywhere, replaced, put back, cleaned up.

What holds at every moment: no log has a message twice (`Log.append` says so), and no ledger has a hole. What holds once everything has
run to its end: each target has what is due, whole; what was acknowledged and known is never delivered again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from geo.ids import MessageId
from tests.examples import examples
from tests.model.log import Row
from tests.model.world import ACKS, MESSAGES, AgainError, Cluster, FailedError, ReplacedError, Run, World, finish

SHAPES: dict[str, dict[str, tuple[str, ...]]] = {
    "pair": {"us->eu": (), "eu->us": ()},
    "one-way": {"a->b": ()},
    "hub": {"a->b": (), "b->c": ("b",)},
    "aggregation": {"x->m": (), "y->m": (), "z->m": ()},
    "inlong": {"a->b": (), "b->a": (), "a->c": ("a",)},
    "mesh": {f"{x}->{y}": () for x in "abc" for y in "abc" if x != y},
}

_STEPS = st.sampled_from([99, 99, 1, 2, 3, 4, 6])
"""How far a run goes on: mostly to its end."""

_AIMS = st.sampled_from([None, None, None, (), ("eu",), ("b",), ("c",)])


class LinksMachine(RuleBasedStateMachine):
    """Producers and links; runs that have begun go on, or die, in any order."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape, self.world = shape, World(SHAPES[shape])
        self.runs: dict[str, Run] = {}
        self.backups: dict[str, Cluster] = {}
        self.faulty = False
        """A log was put back: links may be FAILED until a person says that their sources are right."""

    @rule(data=st.data(), rows=st.lists(_AIMS, min_size=1, max_size=3))
    def publish(self, data: Any, rows: list[Any]) -> None:
        cluster = data.draw(st.sampled_from(sorted(self.world.clusters)))
        self.world.now_us += 1
        # Through the hub a message must name it.
        aims = [None if aim and self.shape == "hub" else aim for aim in rows]
        self._drive(f"publish {cluster}", self.world.publish(cluster, [Row(aim) for aim in aims]), data.draw(_STEPS))

    @rule(data=st.data(), steps=_STEPS, accepts=st.booleans())
    def start_a_link(self, data: Any, steps: int, *, accepts: bool) -> None:
        """Also one that runs: the old one is stale from here on."""
        name = data.draw(st.sampled_from(sorted(self.world.links)))
        stale = self.runs.pop(name, None)
        if stale is not None:
            self.runs[f"stale {name}"] = stale
        self._drive(name, self.world.link(name, accept_source=self.faulty and accepts), steps)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), steps=_STEPS)
    def go_on(self, data: Any, steps: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.runs)))
        self._drive(name, self.runs.pop(name), steps)

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def kill(self, data: Any) -> None:
        self.runs.pop(data.draw(st.sampled_from(sorted(self.runs))))

    @rule(data=st.data())
    def compact_and_clean(self, data: Any) -> None:
        """Commits go that a link has not read yet. Those that a producer must explain stay: without them it refuses to publish."""
        cluster = self.world.clusters[data.draw(st.sampled_from(sorted(self.world.clusters)))]
        log = cluster.logs[MESSAGES]
        log.compact()
        needed = (one.exact_to.version for (_, topic), one in cluster.producers.items() if topic == MESSAGES and one.exact_to)
        log.clean(data.draw(st.integers(0, min(needed, default=log.newest))))

    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        """A log goes back to an older version; nothing else does."""
        log = self.world.clusters[data.draw(st.sampled_from(sorted(self.world.clusters)))].logs[MESSAGES]
        if not any(name.startswith("publish") for name in self.runs):
            log.restore(data.draw(st.integers(log.first, log.newest)))
            self.faulty = True

    @precondition(lambda self: self.shape == "hub")
    @rule()
    def more_origins_cross(self) -> None:
        self.world.links["b->c"] = replace(self.world.links["b->c"], origins=frozenset("ab"))

    @rule(data=st.data())
    def back_up(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.clusters)))
        if not any(run.startswith("publish") for run in self.runs):
            self.backups[name] = self.world.clusters[name].copy()

    @precondition(lambda self: self.backups and self.shape in ("pair", "one-way", "aggregation"))
    @rule(data=st.data())
    def put_back(self, data: Any) -> None:
        """A region is put back from its backup, with its system tables; what ran there is gone, and its own messages come back from a
        peer first, if one has them."""
        name = data.draw(st.sampled_from(sorted(self.backups)))
        self.runs = {}
        fences = self.world.clusters[name].tokens  # files of their own, and claims are above what they say
        self.world.clusters[name] = self.backups[name].copy()
        self.world.clusters[name].tokens = fences
        for link in self.world.links.values():
            if link.source == name:
                self.world.rebuild(name, link.target)
        self.faulty = True

    def _drive(self, name: str, run: Run, steps: int) -> None:
        """Let a run go on for some steps, and keep it if it has not ended."""
        try:
            for _ in range(steps):
                next(run)
        except (StopIteration, ReplacedError, AgainError):
            return
        except FailedError:
            assert self.faulty, "nothing happened that a person must see to"
            return
        if not name.startswith("publish"):
            self.runs[name] = run

    @invariant()
    def no_ledger_has_a_hole(self) -> None:
        for name, cluster in self.world.clusters.items():
            ledgers: dict[tuple[str, int], list[int]] = {}
            for one in cluster.logs[MESSAGES].rows:
                ledgers.setdefault((one.origin, one.ledger_id), []).append(one.entry_id)
            for ledger, entries in ledgers.items():
                assert sorted(entries) == list(range(len(entries))), f"{name}: a hole in {ledger}"

    def teardown(self) -> None:
        if self.shape == "hub":
            self.more_origins_cross()
        for _ in range(6):  # a hub's links follow each other, and a comparison takes a start of its own
            for name in self.world.links:
                try:
                    finish(self.world.link(name, accept_source=self.faulty))
                except AgainError:
                    continue
        for link in self.world.links.values():
            assert self.world.lacks(link) == []
            origins = {m.origin for m in self.world.clusters[link.target].logs[MESSAGES].rows}
            assert origins <= {link.target} | {o for k in self.world.links.values() if k.target == link.target for o in k.origins}


class ConsumersMachine(RuleBasedStateMachine):
    """One subscription, consumed in both of two regions by turns or at once; records overtake messages and each other."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.world = World(SHAPES[shape])
        self.acknowledged: dict[str, set[MessageId]] = {name: set() for name in self.world.clusters}
        """In each cluster: what its consumer acknowledged, and published."""
        self.settled: dict[str, set[MessageId]] = {name: set() for name in self.world.clusters}
        """And what was not published yet."""

    def _cluster(self, data: Any) -> str:
        found: str = data.draw(st.sampled_from(sorted(self.world.clusters)))
        return found

    @rule(data=st.data(), count=st.integers(1, 4))
    def publish(self, data: Any, count: int) -> None:
        self.world.now_us += 1
        finish(self.world.publish(self._cluster(data), [Row()] * count))

    @rule(data=st.data(), topic=st.sampled_from([MESSAGES, ACKS]))
    def link(self, data: Any, topic: str) -> None:
        finish(self.world.link(data.draw(st.sampled_from(sorted(self.world.links))), topic=topic))

    @rule(data=st.data(), publishes=st.booleans())
    def consume(self, data: Any, publishes: bool) -> None:
        cluster = self._cluster(data)
        before = self.world.known(cluster, "s").acked
        rows = sorted(self.world.clusters[cluster].logs[MESSAGES].rows, key=str)
        keep = frozenset(data.draw(st.lists(st.sampled_from(rows), max_size=2))) if rows else frozenset()
        delivered, flush = self.world.consume(cluster, "s", keep)
        assert not delivered & before, "what is known to be acknowledged is not delivered"
        self.settled[cluster] |= set(delivered) - keep
        if publishes:
            finish(flush)
            self.acknowledged[cluster] |= self.settled[cluster]
            self.settled[cluster] = set()

    @rule(data=st.data())
    def kill(self, data: Any) -> None:
        cluster = self._cluster(data)
        self.world.stop_consumer(cluster, "s")
        self.settled[cluster] = set()

    def teardown(self) -> None:
        for _ in range(3):
            for topic in (MESSAGES, ACKS):
                for name in self.world.links:
                    finish(self.world.link(name, topic=topic))
        every = set().union(*self.acknowledged.values())
        for cluster in self.world.clusters:
            rows = set(self.world.clusters[cluster].logs[MESSAGES].rows)
            self.world.stop_consumer(cluster, "s")
            delivered, _ = self.world.consume(cluster, "s")
            known = set().union(
                *(done for name, done in self.acknowledged.items() if name == cluster or f"{name}->{cluster}" in self.world.links)
            )
            assert not set(delivered) & known, "acknowledged, published and brought here: not again"
            assert rows - every <= set(delivered), "nothing is skipped that nobody acknowledged"


_MANY = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_links_under_any_interleaving_lose_and_double_nothing(shape: str) -> None:
    machine: Any = partial(LinksMachine, shape)
    run_state_machine_as_test(machine, settings=settings(_MANY, max_examples=examples(1)))


@pytest.mark.parametrize("shape", ["pair", "inlong"])
def test_consumers_under_any_interleaving_skip_nothing_and_repeat_nothing_that_is_known(shape: str) -> None:
    machine: Any = partial(ConsumersMachine, shape)
    run_state_machine_as_test(machine, settings=settings(_MANY, max_examples=examples(1)))


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_link_that_stops_at_any_window_again_and_again_loses_and_doubles_nothing(shape: str) -> None:
    """Every window in turn, in one world: the next run heals the last death, as in life."""
    world = World(SHAPES[shape])
    points = ("link-claimed", "link-before-reconcile-append", "link-after-reconcile-append", "link-start-recorded", "link-before-append", "link-after-append")  # fmt: skip
    reached = set()
    for point in points * 2:
        for cluster in world.clusters:
            finish(world.publish(cluster, [Row()] * 4))
        for name in world.links:
            for window in world.link(name):
                if window == point:
                    reached.add(point)
                    break
    for _ in range(3):
        for name in world.links:
            finish(world.link(name))
    assert [world.lacks(link) for link in world.links.values()] == [[]] * len(world.links)
    assert reached >= {"link-claimed", "link-before-reconcile-append", "link-after-reconcile-append", "link-after-append"}


def test_a_target_that_is_put_back_and_back_again_while_a_link_compares_gets_nothing_twice() -> None:
    world = World(SHAPES["one-way"])
    log = world.clusters["b"].logs[MESSAGES]
    finish(world.publish("a", [Row()] * 4))
    finish(world.link("a->b"))
    log.restore(0)
    comparing = world.link("a->b")
    assert "link-before-reconcile-append" in comparing
    log.restore(1)
    with pytest.raises(AgainError, match="RESTORE"):
        finish(comparing)
    finish(world.link("a->b"))
    assert world.lacks(world.links["a->b"]) == []
