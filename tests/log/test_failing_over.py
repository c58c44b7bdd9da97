"""Where a producer begins that goes on for one in another region: purely, over any order of publishing, delivery and switches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geo.delta.commits import Commit
from geo.delta.history import CommitName
from geo.errors import UsageError
from geo.log.failing_over import By, Part, Trust, floors_of, furthest, put_back, safe_end, trusted
from geo.log.ledgers import Batch
from geo.log.other_producer import OtherProducer
from geo.replication.link_state import LinkRecord, backfill_record
from tests.examples import examples

Entry = tuple[int, int, int]
"""Ledger, entry and source offset."""


@dataclass(slots=True)
class Region:
    """A region's producer and its log, and what the link has brought here of the other region's."""

    published: list[list[Entry]] = field(default_factory=list)
    """Commits."""
    place: int | None = None
    """What its own record says."""
    ledgers: dict[bool, tuple[int, int]] = field(default_factory=dict)
    """By `replicate_to`, of which there are two, the ledger and its next entry."""
    recorded: dict[int, int] = field(default_factory=dict)
    """Of the newest ledger of each `replicate_to` its last entry, by its own record."""
    backup: tuple[int, int | None, dict[int, int]] | None = None
    """How many commits there were, and what was recorded."""
    arrived: set[Entry] = field(default_factory=set)
    compares: bool = False
    """A comparison of both logs has not come to its end."""
    in_order: set[Entry] | None = field(default_factory=set)
    """While it has not: what was here before it began; None: of nothing here can that be told."""

    def begin_to_compare(self) -> None:
        if not self.compares:
            self.compares, self.in_order = True, set(self.arrived)

    def end(self) -> int | None:
        by_ledger: dict[int, list[Entry]] = {}
        for one in sorted(self.arrived if not self.compares else self.in_order or ()):
            by_ledger.setdefault(one[0], []).append(one)
        return safe_end(Part(0, of[-1][1], len(of), of[-1][2]) for of in by_ledger.values())  # nothing expires


class Pair:
    """Two regions, one of which publishes the records 0, 1, 2, … of one source partition."""

    def __init__(self) -> None:
        self.regions, self.active, self.place, self.born = (Region(), Region()), 0, 0, 0
        self.on_their_way: tuple[set[int], set[int]] = (set(), set())
        """By region the records that the other one was known to hold when it took over, when this one was put back, or when somebody
        took them out of its log: the link, a rebuild or a comparison brings them."""
        self.known_repeats: set[int] = set()
        """Records of which it was said that they may be published again."""
        self.lost: set[int] = set()
        """Records that were on their way when their region was put back, or that somebody took out of the only log that had them."""

    def publish(self, count: int, new_ledger: bool, to: bool = False) -> None:
        region = self.regions[self.active]
        if new_ledger or to not in region.ledgers:
            self.born += 1
            region.ledgers[to] = self.born, 0
        ledger, entry = region.ledgers[to]
        commit = [(ledger, entry + at, self.place + at) for at in range(count)]
        region.published.append(commit)
        region.ledgers[to], self.place = (ledger, entry + count), self.place + count
        region.place = self.place
        region.recorded = {ledger: entry - 1 for ledger, entry in region.ledgers.values()}

    def back_up(self) -> None:
        region = self.regions[self.active]
        region.backup = len(region.published), region.place, region.recorded

    def put_back(self) -> None:
        """The region that publishes is put back from its backup, log and record alike; the other one goes on for it."""
        region, other = self.regions[self.active], self.regions[1 - self.active]
        if region.backup is None:
            return
        commits, region.place, region.recorded = region.backup
        behind = {one for commit in region.published[commits:] for one in commit}
        gone = behind - other.arrived
        # What the other one has of them alone comes back by a rebuild.
        self.on_their_way[self.active].update(one[2] for one in behind & other.arrived)
        self.lost |= {one[2] for one in gone} & self.on_their_way[1 - self.active]
        region.published, region.ledgers = region.published[:commits], {}
        self.switch(readable=True)

    def deliver(self, target: int, commits: int) -> None:
        """The link brings commits of the other region, in their order; one that has a comparison to end does that first."""
        here, there = self.regions[target], self.regions[1 - target]
        if here.compares:
            self.compare(target, 10**6)
        left = [commit for commit in there.published if not here.arrived.issuperset(commit)]
        for commit in left[:commits]:
            here.arrived.update(commit)

    def compare(self, target: int, entries: int) -> None:
        """The link compares both logs, ledger by ledger, and is killed after so many entries."""
        here, left = self.regions[target], self.lacks(target)
        here.begin_to_compare()
        here.arrived.update(left[:entries])
        if len(left) <= entries:
            here.compares, here.in_order = False, set()

    def fill(self, target: int, entries: int) -> None:
        """A backfill brings so many entries, the youngest first; where it does so the link compares at its next start."""
        here, left = self.regions[target], self.lacks(target)
        here.begin_to_compare()
        here.arrived.update(left[::-1][:entries])

    def lacks(self, target: int) -> list[Entry]:
        here, there = self.regions[target], self.regions[1 - target]
        return sorted(one for commit in there.published for one in commit if one not in here.arrived)

    def lose(self, target: int, at: int) -> None:
        """Somebody takes an entry out of the middle of a ledger."""
        here = self.regions[target]
        inner = [one for one in sorted(here.arrived) if (one[0], one[1] - 1) in {o[:2] for o in here.arrived} and
                 (one[0], one[1] + 1) in {o[:2] for o in here.arrived}]  # fmt: skip
        if inner:
            gone = inner[at % len(inner)]
            here.arrived.discard(gone)
            here.compares, here.in_order = True, None
            if gone[2] in self.everywhere():  # the comparison brings it again
                self.on_their_way[target].add(gone[2])
            else:
                self.lost.add(gone[2])

    def switch(self, readable: bool) -> None:
        """The other region goes on. The place is derived twice: it was killed after the first time."""
        there, here = self.regions[self.active], self.regions[1 - self.active]
        end = here.end()
        own = {} if here.place is None else {"p": here.place}
        recorded = {"p": there.place} if readable and there.place is not None else {}
        younger = max(there.recorded, default=-1)
        came = {one[0]: one[1] for one in sorted(here.arrived) if one[0] in there.recorded or one[0] > younger}
        surely = readable and there.place is not None and put_back(there.recorded, came) is None
        arrived = {} if surely or end is None else {"p": end + 1}
        known = {By.OWN: own, By.RECORDED: recorded, By.ARRIVED: arrived}
        chosen = furthest(own, recorded, arrived)
        if not chosen and here.arrived and not surely:
            # Refused: messages are here, and nothing says up to where all are. The other one goes on from its own record.
            self.place = there.place or 0
            self.known_repeats |= {offset for offset in self.everywhere() if offset >= self.place}
            return
        self.active = 1 - self.active
        self.place = known[chosen["p"]]["p"] if chosen else 0  # nothing is known: from the first record
        held = {one[2] for one in here.arrived} | {one[2] for commit in here.published for one in commit}
        if not surely:
            self.known_repeats |= {offset for offset in self.everywhere() if offset >= self.place}
        if readable:
            self.on_their_way[self.active].update(set(range(self.place)) - held)
            return
        # The other region may be lost with all that it has.
        new = range(here.place or 0, self.place)
        assert set(new) <= held | self.on_their_way[self.active], "a record is in no log that is left"

    def everywhere(self) -> Counter[int]:
        """How often each record was published."""
        published = {one for region in self.regions for commit in region.published for one in commit}
        return Counter(one[2] for one in published.union(*(region.arrived for region in self.regions)))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5), st.booleans(), st.booleans()),
        st.tuples(st.just("deliver"), st.integers(0, 1), st.integers(1, 4)),
        st.tuples(st.just("compare"), st.integers(0, 1), st.integers(0, 6)),
        st.tuples(st.just("fill"), st.integers(0, 1), st.integers(0, 6)),
        st.tuples(st.just("lose"), st.integers(0, 1), st.integers(0, 20)),
        st.tuples(st.just("back_up")),
        st.tuples(st.just("put_back")),
        st.tuples(st.just("switch"), st.booleans()),
    ),
    max_size=40,
)


@given(STEPS)
@example([("publish", 5, False), ("deliver", 1, 1), ("lose", 1, 0), ("switch", False)])
@example(
    [("publish", 5, False), ("compare", 1, 3), ("publish", 5, True), ("switch", False), ("publish", 2, False), ("switch", True)]
)
@example([("publish", 5, False), ("publish", 5, True), ("fill", 1, 5), ("switch", False)])
@example([("publish", 2, False), ("publish", 2, False, True), ("publish", 2, False), ("compare", 1, 4), ("switch", False)])
@example([("publish", 4, False), ("back_up",), ("publish", 3, False), ("deliver", 1, 5), ("put_back",)])
@example([("publish", 4, False), ("back_up",), ("publish", 3, True, True), ("deliver", 1, 5), ("put_back",)])
@example([("back_up",), ("publish", 2, False, False), ("fill", 1, 1), ("put_back",), ("deliver", 1, 1), ("switch", False)])
@example([("back_up",), ("publish", 1, False, False), ("publish", 2, False, False), ("fill", 1, 1), ("put_back",)])
@example(
    [
        *(("switch", False), ("back_up",), ("publish", 3, False), ("deliver", 0, 1), ("switch", False), ("lose", 0, 0)),
        *(("publish", 1, False), ("back_up",), ("put_back",), ("put_back",)),
    ]
)
@settings(max_examples=examples(5))
def test_no_record_is_left_out_and_only_what_was_said_comes_again(steps: list[tuple[object, ...]]) -> None:
    pair = Pair()
    for name, *arguments in steps:
        getattr(pair, str(name))(*arguments)
    pair.publish(1, False)
    found = pair.everywhere()
    assert set(range(pair.place)) - pair.lost <= set(found)
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


def test_what_a_backfill_brought_below_a_floor_leaves_no_hole() -> None:
    """The log has the entries 0 to 199 and from 500 on, where the link began; of the second ledger only what is below its floor."""
    assert safe_end([Part(500, 999, 500, 1999), Part(0, -1, 0, 299)]) == 1999
    assert safe_end([Part(0, -1, 0, 299)]) == 299, "what follows a person passed over: it is published again"
    assert floors_of("eu", {"eu:7": 500, "us:8": 3}) == {7: 500}


def test_a_region_that_has_less_than_arrived_here_was_put_back() -> None:
    assert put_back({7: 400, 8: 3}, {7: 400, 8: 2}) is None
    assert put_back({7: 400}, {}) is None
    assert (
        put_back({7: 400}, {7: 700})
        == "ledger 7 ends at entry 400 there and ends at entry 700 here: it was put back from a backup"
    )
    assert put_back({7: 400}, {7: 1, 9: 0}) == "ledger 9 is not known there and has entry 0 here: it was put back from a backup"


def test_a_partition_that_would_be_published_from_its_first_record_on_is_refused_by_name() -> None:
    """Messages of a and b are here, and of neither is a place known by what arrived."""
    other = OtherProducer("p", "eu", "us", {"b": [7, ""]}, {}, "eu cannot be read", True, frozenset({"a", "b"}))
    with pytest.raises(
        UsageError, match=r"in us from eu: messages of a are here, .* \(eu cannot be read\)\. Nothing was published"
    ):
        other.continued({})
    assert {one.source: one.by for one in other.continued({"a": [3, ""]})} == {"a": By.OWN, "b": By.RECORDED}


# -- how much of what is here counts ---------------------------------------------------------------------------------------

SINCE = CommitName("t", 4, "c4")


def _commit(version: int, record: str | None = None, operation: str = "WRITE") -> Commit:
    return Commit(version, f"c{version}", operation, {"mode": "Append"}, {"numDeletedRows": 1}, record, 0, None)


def _link(version: int, origin: str = "eu", *, reconciling: bool = False) -> Commit:
    record = LinkRecord("eu->us", (origin,), "t", CommitName("s", 1, "x"), 1, "token", reconciling=reconciling)
    return _commit(version, record.encode())


def _trusted(*commits: Commit, since: CommitName | None = SINCE, table_id: str = "t") -> Trust:
    return trusted("eu", since, table_id, 7, _commit(4), commits)


def test_all_that_is_here_counts_while_a_link_brings_it_in_order() -> None:
    assert _trusted() == Trust(7)
    assert _trusted(_link(5), _commit(6, Batch("p", 1, (), {}).encode()), _link(7)) == Trust(7)
    assert _trusted(_link(5, "ap", reconciling=True), _commit(6, backfill_record("l", ["ap"], SINCE))) == Trust(7), "others"


def test_from_the_first_commit_on_that_may_have_brought_younger_ones_first_nothing_counts() -> None:
    assert _trusted(_link(5), _link(6, reconciling=True), _link(7)) == Trust(
        5, "what a comparison of both logs brought since version 6 need not be all"
    )
    filled = _trusted(_link(5), _commit(6, backfill_record("eu->us", ["eu"], SINCE)), _link(7, reconciling=True))
    assert filled == Trust(5, "what a backfill brought since version 6 need not be all")
    theirs = _trusted(_link(5), _commit(6), _link(7))
    assert theirs.version == 5
    assert theirs.why is not None
    assert theirs.why.startswith("what somebody else (WRITE by someone")


def test_where_the_link_never_had_all_or_the_log_was_changed_nothing_counts() -> None:
    assert _trusted(_link(5), since=None).version is None
    assert "has never run" in (_trusted(since=None).why or "")
    assert "table id is u, it was t" in (_trusted(table_id="u").why or "")
    assert "has another commit" in (_trusted(since=CommitName("t", 4, "other")).why or "")
    changed = _trusted(_link(5), _link(6, reconciling=True), _commit(7, operation="DELETE"))
    assert changed.version is None
    assert "version 7 of the log here is a DELETE by someone" in (changed.why or "")
