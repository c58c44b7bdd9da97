"""Where a producer begins that goes on for one in another region: purely, over any order of publishing, delivery and switches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from geo.log.failing_over import By, Part, furthest, safe_end

Entry = tuple[int, int, int]
"""Ledger, entry and source offset."""


@dataclass(slots=True)
class Region:
    """A region's producer and its log, and what the link has brought here of the other region's."""

    published: list[list[Entry]] = field(default_factory=list)
    """Commits."""
    place: int | None = None
    """What its own record says."""
    ledger: int = 0
    entry: int = 0
    arrived: set[Entry] = field(default_factory=set)
    compares: bool = False
    """A comparison of both logs has not come to its end."""

    def parts(self) -> list[Part]:
        by_ledger: dict[int, list[Entry]] = {}
        for one in sorted(self.arrived):
            by_ledger.setdefault(one[0], []).append(one)
        return [Part(of[0][1], of[-1][1], len(of), of[-1][2]) for of in by_ledger.values()]


class Pair:
    """Two regions, one of which publishes the records 0, 1, 2, … of one source partition."""

    def __init__(self) -> None:
        self.regions, self.active, self.place, self.born = (Region(), Region()), 0, 0, 0
        self.on_their_way: tuple[set[int], set[int]] = (set(), set())
        """By region the records that the other one was known to hold when it took over: the link brings them."""
        self.known_repeats: set[int] = set()
        """Records of which it was said that they may be published again."""

    def publish(self, count: int, new_ledger: bool) -> None:
        region = self.regions[self.active]
        if new_ledger or not region.ledger:
            self.born += 1
            region.ledger, region.entry = self.born, 0
        commit = [(region.ledger, region.entry + at, self.place + at) for at in range(count)]
        region.published.append(commit)
        region.entry, self.place = region.entry + count, self.place + count
        region.place = self.place

    def deliver(self, target: int, commits: int) -> None:
        """The link brings commits of the other region, in their order; one that has a comparison to end does that first."""
        here, there = self.regions[target], self.regions[1 - target]
        if here.compares:
            self.compare(target, 10**6)
        left = [commit for commit in there.published if not here.arrived.issuperset(commit)]
        for commit in left[:commits]:
            here.arrived.update(commit)

    def compare(self, target: int, entries: int) -> None:
        """The link compares both logs, and is killed after so many entries."""
        here, there = self.regions[target], self.regions[1 - target]
        left = sorted(one for commit in there.published for one in commit if one not in here.arrived)
        here.arrived.update(left[:entries])
        here.compares = len(left) > entries

    def lose(self, target: int, at: int) -> None:
        """Somebody takes an entry out of the middle of a ledger."""
        here = self.regions[target]
        inner = [one for one in sorted(here.arrived) if (one[0], one[1] - 1) in {o[:2] for o in here.arrived} and
                 (one[0], one[1] + 1) in {o[:2] for o in here.arrived}]  # fmt: skip
        if inner:
            here.arrived.discard(inner[at % len(inner)])
            here.compares = True

    def switch(self, readable: bool) -> None:
        """The other region goes on. The place is derived twice: it was killed after the first time."""
        there, here = self.regions[self.active], self.regions[1 - self.active]
        end = safe_end(here.parts())
        own = {} if here.place is None else {"p": here.place}
        recorded = {"p": there.place} if readable and there.place is not None else {}
        arrived = {} if readable or end is None else {"p": end + 1}
        known = {By.OWN: own, By.RECORDED: recorded, By.ARRIVED: arrived}
        chosen = furthest(own, recorded, arrived)
        self.active = 1 - self.active
        self.place = known[chosen["p"]]["p"] if chosen else 0  # nothing is known: from the first record
        held = {one[2] for one in here.arrived} | {one[2] for commit in here.published for one in commit}
        if readable:
            self.on_their_way[self.active].update(set(range(self.place)) - held)
            return
        # The other region may be lost with all that it has.
        new = range(here.place or 0, self.place)
        assert set(new) <= held | self.on_their_way[self.active], "a record is in no log that is left"
        self.known_repeats |= {offset for offset in self.everywhere() if offset >= self.place}

    def everywhere(self) -> Counter[int]:
        """How often each record was published."""
        return Counter(one[2] for region in self.regions for commit in region.published for one in commit)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("deliver"), st.integers(0, 1), st.integers(1, 4)),
        st.tuples(st.just("compare"), st.integers(0, 1), st.integers(0, 6)),
        st.tuples(st.just("lose"), st.integers(0, 1), st.integers(0, 20)),
        st.tuples(st.just("switch"), st.booleans()),
    ),
    max_size=40,
)


@given(STEPS)
@example([("publish", 5, False), ("deliver", 1, 1), ("lose", 1, 0), ("switch", False)])
@example(
    [("publish", 5, False), ("compare", 1, 3), ("publish", 5, True), ("switch", False), ("publish", 2, False), ("switch", True)]
)
@settings(max_examples=500)
def test_no_record_is_left_out_and_only_what_was_said_comes_again(steps: list[tuple[object, ...]]) -> None:
    pair = Pair()
    for name, *arguments in steps:
        getattr(pair, str(name))(*arguments)
    pair.publish(1, False)
    found = pair.everywhere()
    assert set(range(max(found) + 1)) == set(found)
    assert {offset for offset, times in found.items() if times > 1} <= pair.known_repeats


@given(st.lists(st.one_of(st.integers(1, 5), st.none()), max_size=30))
def test_back_and_forth_between_regions_that_can_be_read_each_record_is_published_once(steps: list[int | None]) -> None:
    pair = Pair()
    for count in steps:
        pair.switch(readable=True) if count is None else pair.publish(count, False)
    assert set(pair.everywhere().values()) <= {1}


def test_of_several_places_the_furthest_counts_by_partition() -> None:
    own, recorded, arrived = {"a": 5, "b": 5, "d": 9}, {"a": 7, "b": 4, "c": 1}, {"a": 6, "c": 2}
    assert furthest(own, recorded, arrived) == {"a": By.RECORDED, "b": By.OWN, "c": By.ARRIVED, "d": By.OWN}
    assert furthest({"a": 5}, {"a": 5}, {"a": 5}) == {"a": By.OWN}, "later starts go on from the own record"
    assert furthest({}, {}, {}) == {}


def test_a_ledger_with_a_hole_and_what_is_behind_it_count_for_nothing() -> None:
    whole, holed, later = Part(0, 9, 10, 109), Part(0, 9, 9, 119), Part(0, 4, 5, 124)
    assert safe_end([later, whole, holed]) == 109
    assert safe_end([holed, later]) is None
    assert safe_end([later, whole]) == 124
    assert safe_end([Part(5, 9, 5, 109)]) == 109, "its beginning has expired"
    assert safe_end([]) is None
