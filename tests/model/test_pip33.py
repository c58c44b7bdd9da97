"""PIP-33 under any schedule: clusters of every shape, links that lag, end and begin anew, logs that are filled in, begun at their end or
put back, drivers that hear and write as late as can be, and die.

`pip33.py` checks as things are decided: no update lets a cursor pass a message that was routed to both and is not finished; none moves
one past what nobody has processed; and a controller says the same from its journal, from its kept state and in any batches. After every
step here: the cut of every snapshot in a cache, and the bounds.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from geo.config.model import Snapshots
from geo.subscription.pip33.happened import Happened
from tests.examples import examples
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
    "a third that is heard in one of both at first": {"a->b": (), "b->a": (), "c->b": (), "a->c": (), "b->c": ()},
    "a third that sends to one of both at first": {"a->b": (), "b->a": (), "c->a": ()},
}
LATER: dict[str, dict[str, tuple[str, ...]]] = {
    "a third that is heard in one of both at first": {"c->a": ()},
    "a third that sends to one of both at first": {"c->b": ()},
}
"""Links that are there from some time on, and bring all from the beginning."""
SETTLED = SHAPES.keys() - {"a third that sends to both", "a third that sends to one of both at first", "one-way"}
"""Where a and b get in step once everything runs: they reach each other, and whoever's messages are in both can be asked."""

_SETTINGS = Snapshots(frequency_s=10, timeout_s=30, max_cached=4)
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

    @rule(seconds=st.sampled_from([0, 10, 10]), rounds=st.sampled_from([1, 2, 5]), backward=st.booleans())
    def go_round(self, seconds: int, rounds: int, backward: bool) -> None:
        """What goes well for a while: by single steps alone a snapshot of three would hardly ever be complete."""
        if seconds:
            self.world.now += seconds
            for name in self.world.clusters:
                self.world.look(name)
        for _ in range(rounds):
            for link in sorted(self.world.links, reverse=backward):
                self.world.deliver(link)
            for name in self.world.clusters:
                self.world.run(name)

    @rule(random=st.randoms(use_true_random=False), rounds=st.sampled_from([1, 2, 5]))
    def go_in_disorder(self, random: Random, rounds: int) -> None:
        """Some links bring something, in any order, some clusters go on, and messages come in between."""
        names = sorted(self.world.clusters)
        for name in names:
            if random.random() < 0.5:
                self.world.now += 5
                self.world.tick(name)
        for _ in range(rounds * len(self.world.links)):
            link = random.choice(sorted(self.world.links))
            self.world.deliver(link, random.choice([1, 1, 2, 1_000]))
            if random.random() < 0.8:
                self.world.run(self.world.links[link].target)
            if random.random() < 0.3:
                self.world.publish(random.choice(names))
            if random.random() < 0.2:
                self.world.check()

    @rule(data=st.data(), seconds=st.sampled_from([0, 5, 10, 10, 31]))
    def tick(self, data: Any, seconds: int) -> None:
        self.world.now += seconds
        self.world.tick(self._cluster(data).name)

    @rule(data=st.data())
    def look(self, data: Any) -> None:
        self.world.look(self._cluster(data).name)

    @rule(data=st.data(), how=st.sampled_from(["run", "tail", "hear", "hear", "hear and write", "crash"]), most=_FEW)
    def drive(self, data: Any, how: str, most: int) -> None:
        name = self._cluster(data).name
        if how.startswith("hear"):
            self.world.hear(name, most)
            if how == "hear and write":
                self.world.write(name)
        else:
            getattr(self.world, how)(name)

    @rule(data=st.data(), most=_FEW)
    def read(self, data: Any, most: int) -> None:
        readers = [cluster.name for cluster in self.world.clusters.values() if "s" in cluster.readers]
        if readers:
            self.world.read(data.draw(st.sampled_from(readers)), "s", most)

    @rule(data=st.data())
    def fail_over(self, data: Any) -> None:
        """Or begin anew where one has read before."""
        self.world.subscribe(self._cluster(data).name, "s")

    @rule(data=st.data(), how=st.sampled_from(["link", "link", "work", "work", "work", "reset", "unsubscribe", "put back"]))
    def disturb(self, data: Any, how: str) -> None:
        link = self._link(data)
        if how == "link":
            self.world.links[link].up = data.draw(st.sampled_from([True, True, False]))
        elif how == "work":  # what was under way on the link is left where it is
            self.work[link] = getattr(self.world, data.draw(st.sampled_from(["reconcile", "backfill"])))(link)
        elif how == "reset":
            self.work.pop(link, None)
            self.world.reset_to_latest(link)
        elif how == "unsubscribe":
            self.world.unsubscribe(self._cluster(data).name, "s")
        elif self.puts_back:
            cluster = self._cluster(data)
            self.work = {}
            self.world.put_back(cluster.name, data.draw(st.integers(max(0, cluster.newest - 5), cluster.newest)))

    @property
    def _links_to_come(self) -> set[str]:
        return LATER.get(self.shape, {}).keys() - self.world.links.keys()

    @precondition(lambda self: self._links_to_come)
    @rule()
    def link_more(self) -> None:
        for name, origins in LATER[self.shape].items():
            self.world.link(name, origins)

    @precondition(lambda self: self.work)
    @rule(data=st.data(), steps=st.sampled_from([1, 2, 1_000, 1_000]))
    def go_on(self, data: Any, steps: int) -> None:
        link = data.draw(st.sampled_from(sorted(self.work)))
        for _ in range(steps):
            if next(self.work[link], "end") == "end":
                del self.work[link]
                return

    @invariant()
    def every_cut_holds_and_nothing_grows(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        """Once all is up and each work has ended, a and b get in step, and then there is silence."""
        world = self.world
        if self._links_to_come:
            self.link_more()
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
            assert world.begin(world.clusters["b"], "s") > last, "all was finished in a, and b would repeat some"

    def _settle(self) -> None:
        self.world.now += 31
        for name in self.world.clusters:
            self.world.look(name)
        for _ in range(12):
            for name in self.world.clusters:
                self.world.run(name)
            for link in self.world.links:
                self.world.deliver(link)


def in_small_steps(world: World, random: Random, steps: int) -> None:
    """Links bring a commit at a time, in any order, and whatever one cluster has done by then comes in between: answers of one snapshot
    are as far apart as they can be. Some messages are held back from the beginning, and filled in at any time."""
    names, links = sorted(world.clusters), sorted(world.links)
    world.subscribe("a", "s")
    for name in names:
        world.tick(name)
        world.publish(name)
    unrest = random.choice([0.0, 0.01, 0.05])
    if unrest:
        for link in links:
            world.reset_to_latest(link)
    for _ in range(steps):
        if random.random() < unrest:
            _disturb(world, random)
        chance = random.random()
        if chance < 0.75:
            link = random.choice(links)
            world.deliver(link, random.choice([1, 1, 2, 1_000]))
            _go_on(world, world.links[link].target, random)
        elif chance < 0.85:
            _publish(world, random)
        elif chance < 0.88:
            name = random.choice(["a", "a", *names])
            world.now += 10
            world.tick(name)
            _go_on(world, name, random)
        elif chance < 0.94:
            readers = [name for name in names if "s" in world.clusters[name].readers]
            world.read(random.choice(readers), "s", random.choice([1, 1, 2, 1_000]))
        elif chance < 0.942:
            world.subscribe(random.choice(names), "s")
        else:
            _go_on(world, random.choice(names), random)
        world.check()


def _publish(world: World, random: Random) -> None:
    name = random.choice(sorted(world.clusters))
    others = [other for other in sorted(world.clusters) if other != name and world.way(name, other)]
    world.publish(name, 1, None if random.random() < 0.6 else random.sample(others, random.randint(0, len(others))))


def _go_on(world: World, name: str, random: Random) -> None:
    """A driver mostly does all there is; or something of it, and the rest is late."""
    how = random.choice(["run", "run", "run", "run", "tail", "hear", "write", "crash"])
    getattr(world, how)(name)


def _disturb(world: World, random: Random) -> None:
    names, link = sorted(world.clusters), random.choice(sorted(world.links))
    what = random.choice(["reset", "backfill", "backfill", "reconcile", "put back"])
    if what == "reset":
        world.reset_to_latest(link)
    elif what == "put back":
        name = random.choice(names)
        newest = world.clusters[name].newest
        world.put_back(name, random.randint(max(0, newest - 6), newest))
        world.tick(name)
    else:
        for _ in getattr(world, what)(link):
            world.check()
            if random.random() < 0.3:
                _go_on(world, random.choice(names), random)


_PATIENT = Snapshots(frequency_s=10, timeout_s=1_000, max_cached=4)
"""No snapshot is given up because others had more to do."""


@pytest.mark.parametrize("shape", ["pair", "mesh", "hub", "hub and a side way", "ring"])
def test_the_cut_holds_however_far_apart_answers_are(shape: str) -> None:
    for number in range(max(1, examples(0.03))):
        in_small_steps(World(SHAPES[shape], _PATIENT), Random(number), 150)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_no_schedule_makes_a_cursor_pass_what_is_unprocessed(shape: str) -> None:
    run_state_machine_as_test(
        partial(Machine, shape),  # type: ignore[arg-type]  # it is called, no more
        settings=settings(max_examples=examples(0.13), stateful_step_count=40, suppress_health_check=list(HealthCheck)),
    )


@pytest.mark.parametrize("shape", LATER)
def test_no_snapshot_counts_while_who_asks_does_not_know_whose_messages_come_to_both(shape: str) -> None:
    """A link is there before others have read so, and one of both ways is slow."""
    world = World(SHAPES[shape])
    (later,) = LATER[shape]
    world.subscribe("a", "s")
    for name in world.clusters:
        world.look(name)
    world.publish("a")
    for _ in range(2):
        world.publish("c")
    world.link(later)
    world.deliver("c->a", 1)  # and the rest later
    world.deliver("c->b")
    world.now += 10
    world.tick("a")
    for _ in range(6):
        for name in "ab":
            world.run(name)
        for link in ("a->b", "b->a"):
            world.deliver(link)
        world.check()
    assert world.clusters["a"].truth.snapshots("s") == ()
    assert world.clusters["a"].truth.counts[Happened.NOT_ASKED.value] == 1


def test_without_the_voids_of_links_a_hub_that_is_filled_in_late_breaks_the_cut_of_others() -> None:
    """That the model sees it, and why a link voids where it brings rows that are out of order in its source."""
    world = World(SHAPES["hub"], inherit=False)
    for name in world.clusters:
        world.tick(name)
        world.run(name)
    world.subscribe("a", "s")
    world.publish("b")
    world.reset_to_latest("b->h")
    world.publish("a")
    world.tick("a")
    for _ in range(12):
        for name in world.clusters:
            world.run(name)
        for link in world.links:
            world.deliver(link)
    assert len(world.clusters["a"].truth.snapshots("s")) == 1
    world.check()
    for _ in world.backfill("b->h"):
        pass
    world.deliver("h->a")
    with pytest.raises(AssertionError, match=r"\('b', 1\) is at 1:0 in b, at or before .*, and here at"):
        world.check()
