"""The controller of a topic, one rule a test. What follows from rules together is shown by tests/model/test_pip33.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.config.model import Snapshots
from geo.errors import SchemaError
from geo.ids import Position
from geo.subscription.pip33 import subscription_cursors
from geo.subscription.pip33.controller import FOR_OTHERS, STATE_VERSION, TopicController
from geo.subscription.pip33.controller_rows import (
    Effect,
    FinishedUpTo,
    GivenUp,
    Invalidated,
    MarkerRow,
    MayStart,
    Resnapshot,
    StateDropped,
    Subscribed,
    Tick,
    Unsubscribed,
    WriteMarker,
)
from geo.subscription.pip33.happened import Happened
from geo.subscription.pip33.markers import (
    Marker,
    SnapshotRequest,
    SnapshotResponse,
    SnapshotTaken,
    SubscriptionUpdate,
    encode,
)
from geo.subscription.pip33.snapshot_cache import Snapshot
from tests.examples import examples
from tests.model.pip33 import pending

AT = 1_000_000_000


def sid(second: int, cluster: str = "a") -> str:
    return f"{cluster}:t:{second * 1_000_000}"


class Topic:
    """A controller and the log before it: each row comes as the next, each marker in a version of its own."""

    def __init__(self, *remotes: str, settings: Snapshots | None = None, subscribed: bool = True) -> None:
        self.remotes = remotes or ("b",)
        self.controller = TopicController("a", "t", settings)
        self.seq = self.version = 0
        if subscribed:
            assert self.hear(Subscribed, "s") == []

    def hear(self, kind: Any, *fields: Any, **named: Any) -> list[Effect]:
        """Also whatever it was kept as and read from in between."""
        self.seq += 1
        kept = json.loads(json.dumps(self.controller.to_state()))
        self.controller = TopicController.from_state("a", "t", kept, self.controller.settings)
        return self.controller.handle(kind(self.seq, *fields, **named))

    def tick(
        self, now: float, moved: int | None = 1, unable: Mapping[str, str] | None = None, comes: tuple[str, ...] = ()
    ) -> list[Effect]:
        ways: dict[str, tuple[str, ...]] = dict.fromkeys(self.remotes, ())
        return self.hear(Tick, now, moved, self.remotes, unable or {}, ways, comes=comes)

    def reads(self, marker: Marker, sender: str, version: int | None = None, read_to: int | None = None) -> list[Effect]:
        self.version = self.version + 1 if version is None else version
        at = Position(self.version, 0)
        return self.hear(MarkerRow, marker.kind.value, encode(marker), sender, at, read_to or self.version)

    def reads_own(self, effects: list[Effect]) -> list[Effect]:
        """The markers are written and read back."""
        return [then for one in effects if isinstance(one, WriteMarker) for then in self.reads(one.marker, "a")]

    def answers(
        self, second: int, cluster: str, version: int, round_number: int = 1, holds: tuple[str, ...] = ()
    ) -> list[Effect]:
        return self.reads(SnapshotResponse(sid(second), "a", cluster, Position.end(version), round_number, holds), cluster)

    def completes(self, now: int, moved: int, version: int = 7) -> list[Effect]:
        """A whole snapshot with b alone. What follows from it, beside its own marker, which is read back."""
        self.reads_own(self.tick(now, moved))
        taken, *then = self.answers(now, "b", version)
        assert self.reads_own([taken]) == []
        return then

    def pending(self) -> list[str]:
        return pending(self.controller)

    def count(self, why: Happened) -> int:
        return self.controller.counts[why.value]


def request(second: int, round_number: int = 1) -> WriteMarker:
    return WriteMarker(SnapshotRequest(sid(second), "a", second * 1_000_000, round_number), None)


# -- when a snapshot is begun --------------------------------------------------------------------------------------------


def test_a_tick_begins_a_snapshot_whose_id_says_cluster_topic_and_time() -> None:
    assert Topic().tick(5) == [request(5)]


def test_without_a_subscription_there_is_none() -> None:
    topic = Topic(subscribed=False)
    assert topic.tick(5) == []
    topic.hear(Subscribed, "s")
    assert topic.tick(15) == [request(15)]
    topic = Topic()
    topic.hear(Unsubscribed, "s")
    assert topic.tick(5) == []


def test_one_that_is_deleted_here_is_forgotten_and_what_others_told_of_it_stays() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    topic.hear(FinishedUpTo, "s", topic.version)
    topic.hear(Subscribed, "of-b")
    topic.reads(SubscriptionUpdate("of-b", "b:t:7", 7_000_000, {"a": Position.end(2)}), "b")
    assert topic.hear(Unsubscribed, "s") == [StateDropped("s", here_too=False)]
    assert topic.hear(Unsubscribed, "of-b") == [StateDropped("of-b", here_too=False)]
    assert topic.hear(Unsubscribed, "s") == []
    assert topic.controller.subscriptions == ("of-b",)
    assert topic.controller.start("of-b") == 3


def test_one_that_is_deleted_and_created_again_begins_with_nothing() -> None:
    """Though nobody said in between that it was deleted: who says it did not run."""
    topic = Topic(subscribed=False)
    topic.hear(Subscribed, "s", 4, None, 100)
    assert topic.hear(Subscribed, "s", None, None, 100) == []
    assert topic.controller.finished("s") == 4
    assert topic.hear(Subscribed, "s", None, None, 200) == [StateDropped("s", here_too=False)]
    assert topic.controller.finished("s") is None


def test_where_the_log_is_another_one_nothing_that_was_said_of_versions_counts() -> None:
    topic = Topic()
    assert topic.hear(Invalidated, "dropped and created again", True, "other") == [StateDropped("s", here_too=True)]


def test_a_cluster_that_never_answers_is_named_and_asked_ever_more_rarely_until_it_does() -> None:
    topic = Topic()
    begun, named = list[int](), list[object]()
    for second in range(5, 1_200, 5):
        for effect in topic.tick(second, moved=second):
            if isinstance(effect, WriteMarker):
                begun.append(second)
                topic.reads_own([effect])
        if topic.controller.waits_for:
            named.append((second, topic.controller.waits_for))
    assert begun == [5, 40, 75, 110, 170, 290, 530, 1_010], "once one is given up, then after ever longer pauses"
    assert named[0] == (110, {"b": "it has not answered the last 3 snapshots"})
    topic.reads_own(topic.answers(1_010, "b", 7))
    assert topic.tick(1_205, moved=1_205) == [request(1_205)]
    assert topic.controller.waits_for == {}


def test_where_its_requests_do_not_come_into_the_log_nobody_else_is_named() -> None:
    topic = Topic()
    for second in (5, 40, 75, 110):
        assert topic.controller.waits_for == {}
        written = topic.tick(second, moved=second)
    why = "its last 3 requests did not come into the log; whoever runs version sync there logs why"
    assert topic.controller.waits_for == {"a": why}
    assert written[0] == GivenUp(sid(75), ()), "nobody could answer"
    topic.reads_own(written)
    topic.tick(115, moved=115)
    assert topic.controller.waits_for == {}


def test_without_anybody_to_ask_or_any_message_there_is_none() -> None:
    topic = Topic()
    assert topic.hear(Tick, 5, 1, ()) == []
    assert topic.tick(15, moved=None) == []


def test_not_more_often_than_the_frequency() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    assert topic.tick(14.9, moved=2) == []
    assert topic.tick(15, moved=2) == [request(15)]


def test_none_when_nothing_but_markers_was_written_since_the_last_one_began() -> None:
    topic = Topic()
    topic.completes(5, moved=3)
    assert topic.tick(100, moved=3) == []
    assert topic.tick(110, moved=4) == [request(110)]
    assert topic.tick(120, moved=4) == []
    assert topic.tick(130, moved=5) == [request(130)]


def test_none_while_the_first_is_pending() -> None:
    topic = Topic()
    topic.reads_own(topic.tick(5, moved=1))
    assert topic.tick(15, moved=2) == []
    assert topic.tick(35, moved=2) == []
    assert topic.tick(35.1, moved=2) == [
        GivenUp(sid(5), ("b",)),
        WriteMarker(SnapshotRequest("a:t:35100000", "a", 35_100_000), None),
    ]
    assert topic.count(Happened.GIVEN_UP) == 1


def test_once_one_has_completed_several_may_be_pending_and_both_may_end() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    topic.reads_own(topic.tick(15, moved=2))
    topic.reads_own(topic.tick(25, moved=3))
    assert topic.pending() == [sid(15), sid(25)]
    for second in (15, 25):
        topic.reads_own(topic.answers(second, "b", second))
    assert topic.pending() == []
    assert [one.snapshot_id for one in topic.controller.snapshots("s")] == [sid(5), sid(15), sid(25)]


def test_one_who_cannot_answer_is_named_and_holds_up_all_until_it_can() -> None:
    topic = Topic("b", "c")
    assert topic.tick(5, unable={"c": "PAUSED", "z": "not asked"}) == []
    assert topic.controller.waits_for == {"c": "PAUSED"}
    assert topic.tick(25, unable={"c": "FAILED"}) == []
    assert topic.controller.waits_for == {"c": "FAILED"}
    assert topic.tick(35) == [request(35)]
    assert topic.controller.waits_for == {}


def test_one_begun_when_others_were_to_be_asked_is_given_up() -> None:
    """Messages of the new one may be in what an asked cluster answers."""
    topic = Topic()
    topic.reads_own(topic.tick(5))
    assert topic.hear(Tick, 10, 1, ("c", "b")) == [GivenUp(sid(5), ("b",))]
    assert topic.answers(5, "b", 7) == []
    assert topic.count(Happened.COMPLETED) == 0
    assert topic.hear(Tick, 15, 1, ("c", "b")) == [request(15)]
    assert topic.hear(Tick, 16, 1, ("b", "c")) == []


def test_what_was_completed_before_others_were_to_be_asked_is_not_used_and_one_is_taken_of_a_topic_at_rest() -> None:
    """Their history may come here behind it, and be before it there."""
    topic = Topic()
    assert topic.completes(5, moved=1) == []
    assert [one.snapshot_id for one in topic.controller.snapshots("s")] == [sid(5)]
    topic.remotes = ("b", "c")
    assert topic.tick(15, moved=1) == [request(15)]
    assert topic.controller.snapshots("s") == ()
    assert topic.hear(FinishedUpTo, "s", topic.version) == [], "no update is told by it"


def test_what_was_completed_counts_when_fewer_are_to_be_asked() -> None:
    topic = Topic("b", "c")
    topic.reads_own(topic.tick(5))
    for round_number in (1, 2):
        for cluster in ("b", "c"):
            found = topic.answers(5, cluster, 7, round_number)
        topic.reads_own(found)
    topic.remotes = ("b",)
    assert topic.tick(15, moved=1) == []
    assert [one.snapshot_id for one in topic.controller.snapshots("s")] == [sid(5)]


def test_an_answer_out_of_a_log_that_holds_messages_of_one_who_is_not_asked_is_of_no_use() -> None:
    """Who answers has heard of a link or a policy, and who asks has not yet."""
    topic = Topic()
    topic.reads_own(topic.tick(5, comes=("b", "c")))
    assert topic.answers(5, "b", 7, holds=("c",)) == []
    assert (topic.count(Happened.NOT_ASKED), topic.count(Happened.COMPLETED)) == (1, 0)
    assert topic.answers(5, "b", 7) == [], "nor is another one of the same snapshot"
    assert topic.tick(6, comes=("b", "c")) == [GivenUp(sid(5), ("b",))]
    topic.remotes = ("b", "c")
    topic.reads_own(topic.tick(15, comes=("b", "c")))
    assert topic.answers(15, "b", 8, holds=("c",)) == []
    assert topic.answers(15, "c", 9, holds=("b",)) == [request(15, 2)]
    topic = Topic()
    topic.reads_own(topic.tick(5, comes=("b",)))
    assert len(topic.answers(5, "b", 7, holds=("c",))) == 1, "what does not come here"


def test_one_with_whom_it_stays_at_odds_is_named_and_asked_ever_more_rarely() -> None:
    """As where the configurations of both do not say the same."""
    topic = Topic()
    for at in (5, 15, 25):
        topic.reads_own(topic.tick(at, comes=("b", "c")))
        topic.answers(at, "b", 7, holds=("c",))
    assert topic.controller.waits_for == {}
    assert topic.tick(35, comes=("b", "c")) == [GivenUp(sid(25), ("b",))]
    assert topic.controller.waits_for == {
        "b": "it holds messages of c, which by the links and policies known here is not to be asked"
    }
    topic.reads_own(topic.tick(56, comes=("b", "c")))
    assert len(topic.answers(56, "b", 7)) == 1
    topic.tick(57, comes=("b", "c"))
    assert topic.controller.waits_for == {}


def test_of_an_update_that_was_lost_one_more_snapshot_is_taken_and_the_others_stay() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    topic.hear(Subscribed, "behind")
    topic.completes(15, moved=1)
    topic.hear(FinishedUpTo, "s", topic.version)
    before = topic.controller.snapshots("behind")
    assert topic.tick(25) == []
    assert topic.hear(Resnapshot) == []
    (begun,) = topic.tick(35)
    topic.reads_own([begun])
    topic.hear(FinishedUpTo, "s", topic.version)
    _, *told = topic.answers(35, "b", 9) + topic.hear(FinishedUpTo, "s", topic.version)
    assert told == [update(35, b=9), MayStart("s", sid(35), 35_000_000, {"b": 10})]
    assert topic.controller.snapshots("behind")[: len(before)] == before


def test_an_answer_says_whose_messages_come_here() -> None:
    topic = Topic("b", "c")
    topic.tick(5, comes=("b", "c", "d"))
    answer = SnapshotResponse(sid(9, "b"), "b", "a", Position.end(1), holds=("c", "d"))
    assert topic.reads(SnapshotRequest(sid(9, "b"), "b", 9_000_000), "b") == [WriteMarker(answer, ("b",))]


def test_a_clock_that_was_put_back_stops_nothing() -> None:
    topic = Topic()
    topic.completes(1000, moved=1)
    topic.reads_own(topic.tick(1010, moved=2))
    assert topic.tick(500, moved=3) == [GivenUp(sid(1010), ("b",)), request(500)]


def test_it_rests_when_no_tick_can_do_anything() -> None:
    topic = Topic()

    def rests() -> bool:
        return topic.controller.rests

    assert not rests()
    topic.reads_own(topic.tick(5, moved=1))
    assert not rests()
    topic.reads_own(topic.answers(5, "b", 7))
    assert rests()
    topic.tick(7, moved=2)
    assert not rests(), "one is wanted, and it is too soon"
    topic.tick(15, moved=2, unable={"b": "PAUSED"})
    assert rests()
    topic.hear(Invalidated, "b->a", True)
    assert not rests()


# -- how it goes on ------------------------------------------------------------------------------------------------------


def test_a_snapshot_counts_once_its_last_answer_is_heard_and_its_own_row_changes_nothing() -> None:
    topic = Topic()
    topic.reads_own(topic.tick(5))
    topic.hear(FinishedUpTo, "s", 1)
    (written,) = topic.answers(5, "b", 7)
    snapshot = Snapshot(sid(5), Position.end(2), {"b": Position.end(7)}, 5_000_000)
    assert written == WriteMarker(SnapshotTaken(snapshot, begun=2, moved=1), ())
    assert topic.controller.snapshots("s") == (snapshot,)
    assert (topic.pending(), topic.count(Happened.COMPLETED)) == ([], 1)
    assert topic.reads_own([written]) == []
    assert topic.controller.snapshots("s") == (snapshot,)
    assert topic.count(Happened.COMPLETED) == 1


def test_one_that_was_taken_before_this_state_began_counts_by_its_own_row() -> None:
    topic = Topic()
    topic.reads_own(topic.tick(5))
    written = topic.answers(5, "b", 7)
    later = Topic()
    later.tick(4, moved=None)
    later.hear(FinishedUpTo, "s", 99)
    assert later.reads_own(written) != []
    assert later.count(Happened.COMPLETED) == 1


def test_one_that_is_not_known_is_of_no_use_behind_one_that_counts() -> None:
    """As a controller hears that begins with the answers to the later one."""
    topic = Topic()
    topic.completes(15, moved=1)
    before = topic.controller.snapshots("s")
    early = SnapshotTaken(Snapshot(sid(5), Position.end(1), {"b": Position.end(2)}, 5_000_000), topic.seq, 1)
    assert topic.reads(early, "a") == []
    assert topic.controller.snapshots("s") == before != ()
    assert topic.count(Happened.OVERTAKEN) == 1


def test_one_that_was_given_up_counts_no_more() -> None:
    topic = Topic()
    topic.reads_own(topic.tick(5))
    assert topic.tick(36) == [GivenUp(sid(5), ("b",)), request(36)]
    assert topic.answers(5, "b", 7) == []
    assert topic.count(Happened.LATE) == 1


def test_whoever_has_finished_every_message_is_in_step_as_soon_as_a_snapshot_counts() -> None:
    """Its last answer stands behind what the consumer has finished, and nothing else does."""
    topic = Topic()
    topic.reads(SnapshotRequest(sid(1, "c"), "c", 1_000_000), "c")
    topic.hear(FinishedUpTo, "s", 1)
    topic.reads_own(topic.tick(5))

    def answer(moved: int) -> list[Effect]:
        topic.version += 1
        response = SnapshotResponse(sid(5), "a", "b", Position.end(7), 1)
        at = Position(topic.version, 0)
        return topic.hear(MarkerRow, response.kind.value, encode(response), "b", at, topic.version, None, moved)

    kept = json.loads(json.dumps(topic.controller.to_state()))
    assert len(answer(moved=2)) == 1, "version 2 brought a message"
    topic.controller = TopicController.from_state("a", "t", kept, topic.controller.settings)
    assert answer(moved=1)[1:] == [update(5, b=7), MayStart("s", sid(5), 5_000_000, {"b": 8})]


def test_two_remotes_need_two_rounds_and_answers_of_another_round_change_nothing() -> None:
    topic = Topic("b", "c")
    topic.reads_own(topic.tick(5))
    assert topic.answers(5, "b", 7, round_number=2) == []
    assert topic.answers(5, "b", 7) == []
    second = topic.answers(5, "c", 8)
    assert second == [request(5, 2)]
    assert topic.answers(5, "b", 9, round_number=2) == [], "our request of this round is not in the log yet"
    topic.reads_own(second)
    assert topic.answers(5, "c", 9) == []
    assert topic.answers(5, "c", 20, round_number=2) == []
    assert len(topic.answers(5, "b", 21, round_number=2)) == 1
    (taken,) = topic.controller.snapshots("s")
    assert taken.clusters == {"b": Position.end(7), "c": Position.end(8)}
    assert taken.local_position == Position.end(topic.version)
    assert topic.count(Happened.LATE) == 3


def test_answers_to_others_pass_through() -> None:
    topic = Topic()
    assert topic.reads(SnapshotResponse(sid(5, "c"), "c", "b", Position.end(1)), "b") == []
    assert topic.count(Happened.LATE) == 0


def test_what_it_wrote_for_others_changes_nothing_here() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    topic.reads_own(topic.tick(15, moved=2))
    topic.hear(FinishedUpTo, "s", 1)
    written = (SnapshotResponse(sid(9, "b"), "b", "a", Position.end(3)), inbound(1))
    assert {one.kind.value for one in written} == FOR_OTHERS
    for one in written:
        before = topic.controller.to_state()
        assert topic.reads(one, "a") == []
        assert topic.controller.to_state() == before | {"seq": topic.seq, "read": Position(topic.version, 0)}


def test_of_two_that_complete_in_one_version_the_later_follows_the_first() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    for second, moved in ((15, 2), (25, 3)):
        topic.reads_own(topic.tick(second, moved))
    version = topic.version + 1
    written = [
        effect
        for index, second in enumerate((15, 25))
        for effect in topic.hear(
            MarkerRow, "SNAPSHOT_RESPONSE", encode(SnapshotResponse(sid(second), "a", "b", Position.end(second))), "b",
            Position(version, index), version,
        )
    ]  # fmt: skip
    topic.version = version
    topic.reads_own(written)
    assert [one.snapshot_id for one in topic.controller.snapshots("s")] == [sid(5), sid(15), sid(25)]
    assert topic.hear(FinishedUpTo, "s", version)[0] == update(25, b=25)


# -- others' requests ----------------------------------------------------------------------------------------------------


def test_a_request_is_answered_by_how_far_the_log_was_looked_at_also_without_a_subscription() -> None:
    topic = Topic(subscribed=False)
    topic.tick(5)
    answer = SnapshotResponse(sid(9, "b"), "b", "a", Position.end(12), 2)
    assert topic.reads(SnapshotRequest(sid(9, "b"), "b", 9, 2), "b", version=7, read_to=12) == [WriteMarker(answer, ("b",))]


def test_an_answer_names_the_hubs_on_its_way() -> None:
    topic = Topic(subscribed=False)
    topic.hear(Tick, 5, 1, ("b", "h"), {}, {"b": ("h",), "h": ()})
    answer = SnapshotResponse(sid(9, "b"), "b", "a", Position.end(1))
    assert topic.reads(SnapshotRequest(sid(9, "b"), "b", 9), "b") == [WriteMarker(answer, ("b", "h"))]


def test_a_request_of_a_cluster_that_no_answer_reaches_is_counted_and_no_more() -> None:
    topic = Topic()
    for _ in range(3):
        assert topic.reads(SnapshotRequest(sid(9, "b"), "b", 9), "b") == [], "before the first tick nobody is known"
    topic.tick(5)
    assert topic.reads(SnapshotRequest(sid(9, "x"), "x", 9), "x") == []
    assert topic.count(Happened.UNREACHABLE) == 4
    assert topic.controller.refused == {}, "of a link that leads one way nothing is wrong"


# -- subscriptions -------------------------------------------------------------------------------------------------------


def update(second: int, **versions: int) -> WriteMarker:
    clusters = {name: Position.end(version) for name, version in versions.items()}
    return WriteMarker(SubscriptionUpdate("s", sid(second), second * 1_000_000, clusters), None)


def test_progress_past_a_snapshot_tells_all_clusters_once() -> None:
    topic = Topic()
    topic.completes(5, moved=1, version=7)
    assert topic.hear(FinishedUpTo, "s", 1) == []
    assert topic.hear(FinishedUpTo, "s", 2) == [update(5, b=7), MayStart("s", sid(5), 5_000_000, {"b": 8})]
    assert topic.hear(FinishedUpTo, "s", 3) == []


def test_a_snapshot_that_comes_behind_what_is_finished_is_used_at_once() -> None:
    topic = Topic()
    topic.hear(FinishedUpTo, "s", 50)
    assert topic.completes(5, moved=1) == [update(5, b=7), MayStart("s", sid(5), 5_000_000, {"b": 8})]


def test_of_several_the_highest_is_told() -> None:
    topic = Topic()
    for number in range(1, 4):
        topic.completes(number * 10, moved=number, version=number)
    assert topic.hear(FinishedUpTo, "s", 50) == [update(30, b=3), MayStart("s", sid(30), 30_000_000, {"b": 4})]


def test_what_is_finished_never_goes_back() -> None:
    topic = Topic()
    topic.hear(FinishedUpTo, "s", 50)
    topic.hear(FinishedUpTo, "s", 3)
    assert topic.controller.finished("s") == 50


def test_who_has_finished_every_message_has_finished_the_markers_behind_them() -> None:
    """A consumer that runs once a night does not come by for the markers of the day."""
    topic = Topic()
    topic.hear(FinishedUpTo, "s", 1)
    topic.completes(5, moved=1)
    assert topic.hear(Tick, 10, 2, ("b",), looked=9) == []
    assert topic.hear(Tick, 11, 1, ("b",), looked=1) == [], "that was before the snapshot"
    assert topic.hear(Tick, 12, 1, ("b",), looked=9) == [update(5, b=7), MayStart("s", sid(5), 5_000_000, {"b": 8})]
    assert topic.controller.finished("s") == 9


def test_progress_of_an_unknown_subscription_is_counted() -> None:
    topic = Topic()
    assert topic.hear(FinishedUpTo, "other", 3) == []
    assert topic.count(Happened.UNKNOWN_SUBSCRIPTION) == 1


def test_who_creates_one_may_say_what_is_finished() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    assert topic.hear(Subscribed, "s", 40) == [update(5, b=7), MayStart("s", sid(5), 5_000_000, {"b": 8})]


# -- updates of others ---------------------------------------------------------------------------------------------------


def inbound(version: int, subscription: str = "s", second: int = 9, cluster: str = "a") -> SubscriptionUpdate:
    return SubscriptionUpdate(subscription, sid(second, "b"), second * 1_000_000, {cluster: Position.end(version)})


def test_an_update_moves_a_subscription_and_never_back() -> None:
    topic = Topic()
    assert topic.reads(inbound(20), "b", version=30) == [MayStart("s", sid(9, "b"), 9_000_000, {"a": 21}, "b")]
    assert topic.reads(inbound(20), "b") == []
    assert topic.reads(inbound(19), "b") == []
    topic.hear(FinishedUpTo, "s", 25)
    assert topic.reads(inbound(25), "b") == []
    assert topic.reads(inbound(26), "b") == [MayStart("s", sid(9, "b"), 9_000_000, {"a": 27}, "b")]


def test_a_place_within_a_version_begins_with_that_version() -> None:
    topic = Topic()
    marker = SubscriptionUpdate("s", sid(9, "b"), AT, {"a": Position(20, 4)})
    assert topic.reads(marker, "b", version=30) == [MayStart("s", sid(9, "b"), AT, {"a": 20}, "b")]


def test_an_update_creates_what_is_unknown_and_that_asks_for_no_snapshots_until_somebody_reads_here() -> None:
    topic = Topic(subscribed=False)
    assert topic.reads(inbound(20), "b", version=30) == [MayStart("s", sid(9, "b"), 9_000_000, {"a": 21}, "b")]
    assert topic.controller.subscriptions == ("s",)
    assert topic.tick(5) == []
    topic.hear(FinishedUpTo, "s", 31)
    assert topic.tick(15) == [request(15)]


def test_as_long_as_a_consumer_elsewhere_is_further_on_there_are_no_snapshots_here() -> None:
    topic = Topic()
    topic.hear(FinishedUpTo, "s", 10)
    topic.reads(inbound(20), "b", version=30)
    assert topic.tick(5, unable={"b": "PAUSED"}) == []
    topic.hear(FinishedUpTo, "s", 19)
    assert topic.tick(15) == []
    topic.hear(FinishedUpTo, "s", 20)
    assert topic.tick(25) == [request(25)]


def test_one_that_does_not_name_this_cluster_or_is_its_own_changes_nothing() -> None:
    topic = Topic(subscribed=False)
    topic.version = 30
    assert topic.reads(inbound(20, cluster="c"), "b") == []
    assert topic.reads(inbound(20), "a") == []
    assert topic.controller.subscriptions == ()


def test_what_an_update_has_moved_is_not_told_on() -> None:
    """b's update goes to all by itself. What is routed here and to c, and not to b, nobody in b has finished."""
    topic = Topic("b", "c")
    topic.reads_own(topic.tick(5))
    for round_number in (1, 2):
        topic.answers(5, "b", 7, round_number)
        topic.reads_own(topic.answers(5, "c", 8, round_number))
    assert len(topic.controller.snapshots("s")) == 1
    assert len(topic.reads(inbound(20), "b", version=30)) == 1


def test_one_beyond_the_end_of_the_log_is_counted() -> None:
    topic = Topic()
    assert topic.reads(inbound(31), "b", version=30, read_to=30) == []
    assert topic.count(Happened.BEYOND) == 1


def test_no_more_subscriptions_are_created_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_cursors, "MAX_SUBSCRIPTIONS", 2)
    topic = Topic()
    topic.version = 30
    assert len(topic.reads(inbound(20, "t"), "b")) == 1
    assert topic.reads(inbound(20, "u"), "b") == []
    topic.hear(Subscribed, "u")
    assert topic.controller.subscriptions == ("s", "u"), "what is used here takes the place of what is not"
    topic.hear(Subscribed, "v")
    assert topic.controller.subscriptions == ("s", "u")
    assert topic.count(Happened.FULL) == 3


def test_a_subscription_that_comes_to_a_topic_at_rest_gets_a_snapshot_too() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    assert topic.tick(15) == []
    topic.hear(Subscribed, "late", None, None, 7)
    assert topic.tick(25) == [request(25)]


# -- what others may write -----------------------------------------------------------------------------------------------


def test_what_is_no_marker_is_counted_with_its_reason() -> None:
    topic = Topic()
    for version, payload in enumerate((None, b'{"version":2}', b"x" * 100_000, b"{}")):
        assert topic.hear(MarkerRow, "SNAPSHOT", payload, "b", Position(version, 0), 1) == []
    assert topic.controller.refused == {"malformed": 2, "newer encoding": 1, "too large": 1}


@pytest.mark.parametrize(
    "marker",
    [
        SnapshotRequest(sid(5), "a", AT),
        SnapshotRequest(sid(5, "c"), "c", AT),
        SnapshotResponse(sid(5), "a", "c", Position.end(1)),
        SnapshotTaken(Snapshot(sid(5), Position.end(1), {"b": Position.end(1)}), 99, 1),
    ],
    ids=lambda one: f"{one.kind.value} {getattr(one, 'source_cluster', '')}",
)
def test_a_cluster_speaks_for_itself_only(marker: Marker) -> None:
    topic = Topic()
    topic.tick(5)
    before = topic.controller.to_state()
    assert topic.reads(marker, "b") == []
    assert topic.controller.refused == {Happened.FORGED.value: 1}
    after = topic.controller.to_state()
    assert {name for name in after if after[name] != before[name]} == {"seq", "read", "counts"}


def test_a_row_heard_before_or_a_marker_copied_twice_changes_nothing() -> None:
    topic = Topic()
    topic.tick(5)
    ask = SnapshotRequest(sid(9, "b"), "b", 9)
    assert len(topic.reads(ask, "b", version=7)) == 1
    assert topic.reads(ask, "b", version=7) == []
    assert topic.controller.handle(FinishedUpTo(1, "s", 9)) == []
    assert topic.count(Happened.REPEATED) == 2


_NAMES = st.sampled_from("abc")
_PLACES = st.builds(Position, st.integers(0, 9), st.integers(0, 2))
_IDS = st.builds(sid, st.integers(0, 40), _NAMES)
_CLUSTERS = st.dictionaries(_NAMES, _PLACES, min_size=1)
_MARKERS = st.one_of(
    st.builds(SnapshotRequest, _IDS, _NAMES, st.integers(0, 40), st.integers(1, 2)),
    st.builds(SnapshotResponse, _IDS, _NAMES, _NAMES, _PLACES, st.integers(1, 2)),
    st.builds(SnapshotTaken, st.builds(Snapshot, _IDS, _PLACES, _CLUSTERS), st.integers(0, 9), st.integers(0, 9)),
    st.builds(SubscriptionUpdate, st.sampled_from("stu"), _IDS, st.integers(0, 40), _CLUSTERS),
)
_ROWS = st.one_of(
    st.tuples(
        st.just(MarkerRow), _MARKERS.map(lambda one: one.kind.value), _MARKERS.map(encode), _NAMES, _PLACES, st.integers(0, 9)
    ),
    st.builds(
        lambda marker, sender, place, read_to: (MarkerRow, marker.kind.value, encode(marker), sender, place, read_to),
        _MARKERS, _NAMES, _PLACES, st.integers(0, 9),
    ),
    st.builds(
        lambda now, moved, asked: (Tick, float(now), moved, tuple(asked), {}, dict.fromkeys(asked, ())),
        st.integers(0, 40), st.none() | st.integers(0, 9), st.lists(st.sampled_from("bc"), unique=True),
    ),
    st.tuples(st.just(FinishedUpTo), st.sampled_from("st"), st.integers(0, 9)),
    st.tuples(st.just(Subscribed), st.sampled_from("st"), st.none() | st.integers(0, 9)),
    st.tuples(st.just(Unsubscribed), st.sampled_from("st")),
    st.tuples(st.just(Resnapshot)),
    st.tuples(st.just(Invalidated), st.sampled_from(["x", "y"]), st.booleans(), st.none() | st.just("t")),
)  # fmt: skip


@settings(max_examples=examples(1.5))
@given(st.lists(_ROWS, max_size=40))
def test_no_rows_in_any_order_do_more_than_they_may(rows: list[tuple[Any, ...]]) -> None:
    """Also none that no driver and no cluster would write. A state kept in between changes nothing, and nobody is moved back."""
    one, starts = TopicController("a", "t"), dict[str, int]()
    for seq, (kind, *fields) in enumerate(rows, 1):
        other = TopicController.from_state("a", "t", json.loads(json.dumps(one.to_state())))
        row = kind(seq, *fields)
        effects = one.handle(row)
        assert effects == other.handle(row)
        assert one.to_state() == other.to_state()
        assert len(pending(one)) <= 4
        if isinstance(row, Invalidated) and row.table is not None:
            starts.clear()
        for effect in effects:
            if isinstance(effect, MayStart) and effect.sender is not None:
                assert effect.starts["a"] > starts.get(effect.subscription, -1)
                starts[effect.subscription] = effect.starts["a"]


# -- voids ---------------------------------------------------------------------------------------------------------------


def test_a_void_takes_what_is_complete_what_is_pending_and_what_is_being_written() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    topic.reads_own(topic.tick(15, moved=2))
    being_written = topic.answers(15, "b", 7)
    topic.reads_own(topic.tick(25, moved=3))
    topic.hear(Invalidated, "reconcile b->a", True)
    assert (topic.controller.snapshots("s"), topic.pending()) == ((), [])
    assert topic.reads_own(being_written) == []
    assert topic.tick(35, moved=4) == []
    assert topic.controller.waits_for == {"a": "reconcile b->a has begun and not ended"}
    topic.hear(Invalidated, "reconcile b->a", False)
    assert topic.reads_own(being_written) == []
    assert topic.answers(25, "b", 9) == []
    assert topic.controller.snapshots("s") == ()
    assert topic.count(Happened.VOID) == 2
    assert topic.tick(45, moved=4) == [request(45)]
    assert topic.controller.waits_for == {}


def test_a_controller_that_was_built_anew_uses_none_that_was_begun_before_the_first_tick_it_knows() -> None:
    """There may have been a void between the two, whose row is gone."""
    topic = Topic()
    begun = topic.tick(5)
    topic.reads_own(begun)
    being_written = topic.answers(5, "b", 7)
    topic.controller = TopicController("a", "t")
    topic.hear(Subscribed, "s")
    assert topic.reads_own(being_written) == []
    assert topic.count(Happened.VOID) == 1, "it knows no tick at all"
    topic.tick(15)
    assert topic.reads_own(being_written) == []
    assert topic.count(Happened.VOID) == 2
    assert topic.controller.snapshots("s") == ()
    topic.completes(60, moved=2)
    assert len(topic.controller.snapshots("s")) == 1


def test_an_idle_topic_gets_one_snapshot_after_a_void() -> None:
    topic = Topic()
    topic.completes(5, moved=1)
    topic.hear(Invalidated, "backfill b->a", True)
    topic.hear(Invalidated, "backfill b->a", False)
    topic.completes(15, moved=1)
    assert len(topic.controller.snapshots("s")) == 1
    assert topic.tick(100, moved=1) == []


def test_several_voids_last_until_each_has_ended_and_one_begun_anew_ends_once() -> None:
    topic = Topic()
    for what in ("b->a", "b->a", "c->a"):
        topic.hear(Invalidated, what, True)
    topic.hear(Invalidated, "b->a", False)
    assert topic.tick(5) == []
    assert topic.controller.waits_for == {"a": "c->a has begun and not ended"}
    topic.hear(Invalidated, "c->a", False)
    assert topic.tick(15) == [request(15)]
    topic.hear(Invalidated, "c->a", False)
    assert len(topic.pending()) == 1, "to end what has not begun changes nothing"


def test_in_another_table_nothing_is_finished_and_updates_count_that_were_answered_since() -> None:
    topic = Topic()
    topic.tick(5)
    topic.hear(FinishedUpTo, "s", 50)
    topic.reads(inbound(20), "b", version=60)
    topic.hear(Invalidated, "put back", True, table="new")
    topic.hear(Invalidated, "put back", False)
    assert (topic.controller.finished("s"), topic.controller.start("s")) == (None, None)
    assert topic.reads(SnapshotRequest(sid(19, "b"), "b", 19_000_000), "b", version=3) == [], "nobody is known before a tick"
    topic.tick(18)
    assert topic.reads(inbound(3, second=20), "b") == []
    assert topic.reads(SnapshotRequest(sid(20, "b"), "b", 20_000_000, 2), "b") != []
    assert topic.reads(inbound(3, second=20), "b") == [], "the first round was answered by the old one"
    assert topic.reads(SnapshotRequest(sid(30, "b"), "b", 30_000_000), "b") != []
    assert topic.reads(inbound(3, second=20), "b") == []
    assert topic.count(Happened.VOID) == 3
    assert len(topic.reads(inbound(3, second=30), "b")) == 1


def test_what_is_said_of_a_table_that_is_gone_does_not_count() -> None:
    """A consumer may tell late what it has finished there; in the new one nobody has read those versions."""
    topic = Topic()
    topic.hear(FinishedUpTo, "s", 50, "old")
    topic.hear(Invalidated, "put back", False, table="new")
    topic.hear(FinishedUpTo, "s", 60, "old")
    topic.hear(Subscribed, "s", 60, "old")
    topic.hear(MarkerRow, "SNAPSHOT", b"", "a", Position(60, 0), 60, "old")
    topic.hear(Tick, 5, 60, ("b",), looked=70, table="old")
    assert topic.controller.finished("s") is None
    assert topic.count(Happened.OTHER_TABLE) == 4
    topic.hear(FinishedUpTo, "s", 3, "new")
    assert topic.controller.finished("s") == 3
    assert topic.tick(15) == [request(15)], "one row says that it was put back, and that this is over"


# -- its state -----------------------------------------------------------------------------------------------------------


def test_a_state_of_another_version_is_refused() -> None:
    state = Topic().controller.to_state()
    with pytest.raises(SchemaError, match="it is built anew from system/markers"):
        TopicController.from_state("a", "t", {**state, "version": STATE_VERSION + 1})


def test_the_state_is_bounded_however_many_snapshots_there_were() -> None:
    """The numbers of the controller's docstring are those of `./run bench state`."""
    subscriptions, snapshots = 20, 1_000
    controller, largest = TopicController("a", "persistent://shop/web/clicks"), 0
    controller.handle(Tick(1, 5.0, 1, ("b",)))
    for number in range(1, subscriptions + 1):
        controller.handle(Subscribed(1 + number, f"subscription-{number}"))
    for version in range(1, snapshots + 1):
        taken = SnapshotTaken(Snapshot(sid(version), Position.end(version - 1), {"b": Position.end(version)}), 99, version)
        seq = subscriptions + 2 * version
        controller.handle(MarkerRow(seq, "SNAPSHOT", encode(taken), "a", Position(version, 0), version))
        controller.handle(FinishedUpTo(seq + 1, f"subscription-{version % subscriptions + 1}", max(0, version - version % 97)))
        if version % (snapshots // 10) == 0:
            largest = max(largest, len(json.dumps(controller.to_state())))
    held = [len(controller.snapshots(one)) for one in controller.subscriptions]
    assert 0 < min(held) <= max(held) <= 30
    assert largest < 60_000


# -- a subscription that begins later -----------------------------------------------------------------------------------


def kept(topic: Topic, subscription: str) -> list[str]:
    return [one.snapshot_id for one in topic.controller.snapshots(subscription)]


@pytest.mark.parametrize("gone_before", [False, True])
def test_one_that_begins_later_gets_the_snapshots_of_its_backlog(gone_before: bool) -> None:
    """Also under the name of one that was deleted, which had passed them."""
    topic = Topic()
    for moved in (1, 2, 3):
        topic.completes(10 * moved, moved)
    last = topic.version
    assert kept(topic, "s") == [sid(10), sid(20), sid(30)]
    name = "late"
    if gone_before:
        name = "s"
        topic.hear(FinishedUpTo, name, last)
        assert kept(topic, name) == []
        topic.hear(Unsubscribed, name)
    topic.hear(Subscribed, name)
    assert kept(topic, name) == [sid(10), sid(20), sid(30)]
    assert topic.hear(FinishedUpTo, name, last - 2)[1] == MayStart(name, sid(20), 20_000_000, {"b": 8})


def test_a_controller_without_its_state_keeps_the_snapshots_that_it_hears_before_it_is_told_who_reads() -> None:
    topic = Topic(subscribed=False)
    topic.tick(5)
    begun = topic.seq
    for second in (10, 20):
        snapshot = Snapshot(sid(second), Position(second, 0), {"b": Position.end(second)}, second * 1_000_000)
        topic.reads(SnapshotTaken(snapshot, begun, second), "a", version=second + 1)
    topic.hear(Subscribed, "s")
    assert kept(topic, "s") == [sid(10), sid(20)]


def test_none_that_is_void_is_left_for_one_that_begins_later() -> None:
    topic = Topic()
    topic.completes(10, 1)
    topic.hear(Invalidated, "reconcile", True)
    topic.hear(Invalidated, "reconcile", False)
    topic.hear(Subscribed, "late")
    assert kept(topic, "late") == []


# -- the switch ------------------------------------------------------------------------------------------------------------


def test_one_that_is_of_its_region_only_from_now_on_ends_what_is_under_way_and_asks_nobody() -> None:
    """The tail says of it what it says of one that was deleted, and no more of it."""
    topic = Topic()
    effects = topic.tick(AT)
    topic.reads_own(effects)
    assert topic.hear(Unsubscribed, "s") == [StateDropped("s", here_too=False)]
    assert topic.tick(AT + 10, moved=5) == []
    assert topic.tick(AT + 31, moved=9) == [GivenUp(sid(AT), ("b",))]
    assert topic.pending() == []
    assert topic.controller.waits_for == {}
    assert topic.controller.rests
    assert topic.hear(Subscribed, "s", None, None, 0) == []
    assert isinstance(topic.tick(AT + 60, moved=9)[0], WriteMarker), "shared again, of a topic at rest too"
