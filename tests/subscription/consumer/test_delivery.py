"""What a consumer delivers, in any interleaving of batches, acknowledgements, redeliveries, records and resets."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from geo.ids import LedgerId, MessageId
from geo.subscription.acks.ack_state import AckState, Base, Epoch, merged
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.consumer.delivery import Answer, Delivery
from tests.examples import examples
from tests.subscription.acks.test_ack_state import ids

DELAY_S = 10
ALL = MessageSet(
    {LedgerId("eu", 1): ((0, 12),), LedgerId("eu", 2): ((0, 12),), LedgerId("us", 1): ((0, 12),), LedgerId("us", 2): ((0, 12),)}
)
some = st.sets(ids)
Delays = Mapping[int, set[MessageId]]
delays = st.dictionaries(st.integers(0, 30), some, max_size=3)


class Consumer(RuleBasedStateMachine):
    """A naive model beside it: per message, how often it was delivered in vain, and when it comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.real = Delivery(AckState(base=Base()), DELAY_S, max_redeliveries=2)
        self.now = 0
        self.acked: set[MessageId] = set()
        self.vain: dict[MessageId, int] = {}
        self.back_at: dict[MessageId, int] = {}
        self.published: list[AckState] = [AckState(base=Base())]
        self.floors: set[MessageId] = set()
        self.outdated: set[MessageId] = set()

    def _hand_out(self, found: MessageSet, done: set[MessageId], delays: Delays) -> None:
        dead = self.real.given_up(found)
        assert set(dead) == {one for one in found if self.vain.get(one, 0) > 2}
        self.real.hand_out(found)
        self.outdated -= set(found)
        done = (done & set(found)) | set(dead)
        left = set(found) - done
        told = dict[int, set[MessageId]]()
        for delay_s, later in delays.items():
            told[delay_s] = later & left
            left = left - later
        self.real.settle(
            found,
            Answer(MessageSet.of(done), {delay_s: MessageSet.of(one) for delay_s, one in told.items()}),
            self.real.state.epoch,
            self.now,
        )
        self.acked |= done
        for one in set(found) - done:
            self.vain[one] = self.vain.get(one, 0) + 1
            self.back_at[one] = self.now + next((delay_s for delay_s, later in told.items() if one in later), DELAY_S)
        for one in done:
            self.back_at.pop(one, None)

    @rule(present=some, done=some, delays=delays)
    def batch(self, present: set[MessageId], done: set[MessageId], delays: Delays) -> None:
        wanted = self.real.wanted(MessageSet.of(present))
        assert set(wanted) == present - self.acked - self.back_at.keys() - self.floors
        self._hand_out(wanted, done, delays)

    @rule(seconds=st.integers(1, 15), done=some, delays=delays)
    def time_passes(self, seconds: int, done: set[MessageId], delays: Delays) -> None:
        self.now += seconds
        ripe = {one for one, time in self.back_at.items() if time <= self.now}
        found = self.real.due(self.now)
        assert set(found) == ripe
        for one in ripe:
            del self.back_at[one]
        self._hand_out(found, done, delays)

    @rule(recalled=some, done=some, delays=delays)
    def what_waits_is_delivered_early(self, recalled: set[MessageId], done: set[MessageId], delays: Delays) -> None:
        found = self.real.recall(MessageSet.of(recalled))
        assert set(found) == recalled & self.back_at.keys()
        for one in found:
            del self.back_at[one]
        self._hand_out(found, done, delays)

    @rule(elsewhere=some, is_here=st.booleans())
    def acknowledged_elsewhere(self, elsewhere: set[MessageId], is_here: bool) -> None:
        record = AckState(self.real.state.epoch, acked=MessageSet.of(elsewhere))
        self.published.append(record)
        assert not self.real.received(record, elsewhere=not is_here)
        self.acked |= elsewhere
        for one in elsewhere:
            self.back_at.pop(one, None)

    @rule(seconds=st.integers(0, 15))
    def acknowledged_later(self, seconds: int) -> None:
        waiting = set(self.back_at)
        self.real.settle(MessageSet(), Answer(MessageSet.of(waiting)), self.real.state.epoch, self.now)
        self.acked |= waiting
        self.back_at.clear()

    @rule(floor=st.integers(0, 12), late=some, seconds=st.integers(0, 15), is_here=st.booleans())
    def reset_elsewhere(self, floor: int, late: set[MessageId], seconds: int, is_here: bool) -> None:
        """While a batch is out, and others wait to be handed out again. A record that is not here yet is not published by
        anybody else, so where the subscription begins is told by this consumer."""
        self.now += seconds
        ripe = set(self.real.due(self.now))
        for one in ripe:
            del self.back_at[one]
        late = late - self.back_at.keys()
        self.real.hand_out(MessageSet.of(late))
        old = self.real.state.epoch
        begun = self.real.state.reset("us", Base({LedgerId("eu", 1): floor}))
        if is_here:
            self.published.append(begun)
        assert self.real.received(begun, elsewhere=not is_here)
        self.outdated |= late | ripe | self.back_at.keys()
        for known in (self.acked, self.vain, self.back_at):
            known.clear()
        self.floors = {MessageId("eu", 1, entry) for entry in range(floor)}
        self.real.settle(MessageSet.of(late), Answer(MessageSet.of(late)), old, self.now)  # a batch that was out meanwhile

    @rule(seen=some)
    def becomes_regional_or_replicated(self, seen: set[MessageId]) -> None:
        """As an operator read it, who did not see all that was published since; only that is in what it goes on as."""
        told = merged(self.published)
        if told.epoch == self.real.state.epoch:
            read = AckState(told.epoch, told.base, acked=told.acked & MessageSet.of(seen))
            assert not self.real.received(read, switched=True)
            self.published = [read]
            self._tell_all()

    @rule()
    def flush(self) -> None:
        self._tell_all()

    def _tell_all(self) -> None:
        if told := self.real.take_unpublished():
            self.published.append(told)
        assert merged(self.published) == self.real.state, "nothing is lost from the records, and nothing else gets in"

    @invariant()
    def the_set_is_what_was_acknowledged(self) -> None:
        assert set(self.real.state.acked) == self.acked
        assert set(self.real.waiting) == set(self.back_at)
        assert set(self.real.outdated) == self.outdated
        counts = self.real.state.redelivery_counts(ALL)
        assert counts == {one: count for one, count in self.vain.items() if one not in self.acked}

    @invariant()
    def files_up_to_a_mark_need_not_be_read(self) -> None:
        done = self.acked | self.floors
        for begin in (0, 3):
            marks = self.real.done.marks(dict.fromkeys(ALL.ledgers, begin))
            for ledger in ALL.ledgers:
                mark = marks.get(ledger, begin - 1)
                assert {MessageId(*ledger, entry) for entry in range(begin, mark + 1)} <= done
                assert MessageId(*ledger, mark + 1) not in done


Consumer.TestCase.settings = settings(max_examples=examples(1), stateful_step_count=20)
TestConsumer = Consumer.TestCase


ONE = MessageSet({LedgerId("eu", 1): ((3, 3),)})


def test_a_message_is_given_up_once_it_was_delivered_in_vain_more_often_than_it_may_come_again() -> None:
    consumer = Delivery(AckState(), DELAY_S, max_redeliveries=2)
    found, given_up = consumer.wanted(ONE), list[bool]()
    for delivery in range(4):
        given_up.append(bool(consumer.given_up(found)))
        consumer.hand_out(found)
        consumer.settle(found, Answer(), consumer.state.epoch, now=delivery * DELAY_S)
        found = consumer.due(now=(delivery + 1) * DELAY_S)
        assert found == ONE
    assert given_up == [False, False, False, True]


def test_what_was_handed_out_before_a_reset_is_not_acknowledged_after_it() -> None:
    consumer = Delivery(AckState(), DELAY_S)
    before = consumer.state.epoch
    consumer.hand_out(consumer.wanted(ONE))
    consumer.received(consumer.state.reset("eu", Base()))
    consumer.settle(ONE, Answer(ONE), before, now=0)
    assert not consumer.state.acked
    assert consumer.take_unpublished() is None
    assert consumer.wanted(ONE) == ONE


def test_each_message_comes_again_after_the_delay_that_the_answer_has_for_it() -> None:
    first, second, third = (MessageSet({LedgerId("eu", 1): ((entry, entry),)}) for entry in range(3))
    consumer, given = Delivery(AckState(), DELAY_S), first | second | third
    consumer.hand_out(consumer.wanted(given))
    consumer.settle(given, Answer(delays={2: first, 5: second}), consumer.state.epoch, now=0)
    assert [consumer.due(now=time_s) for time_s in (1, 2, 4, 5, 9, DELAY_S)] == [
        MessageSet(), first, MessageSet(), second, MessageSet(), third,
    ]  # fmt: skip


def test_one_that_is_switched_tells_again_what_was_not_seen_by_who_did_it() -> None:
    begun = AckState(base=Base())
    consumer = Delivery(begun, DELAY_S)
    one, two = (MessageSet.of([MessageId("eu", 1, entry)]) for entry in range(2))
    consumer.settle(one | two, Answer(one), begun.epoch, 0)
    assert consumer.take_unpublished() is not None, "it is on its way, or in the log behind what the operator read"
    assert not consumer.received(begun, switched=True)
    told = consumer.take_unpublished()
    assert told is not None
    assert (told.acked, told.redelivered) == (one, (two,))
    assert consumer.waiting == two, "it comes again when its time has come, and not before"


def test_one_that_goes_on_in_another_epoch_since_it_was_switched_begins_there_whatever_was_known_of_the_other() -> None:
    """What was heard of a peer's later epoch is of the subscription that the others share."""
    consumer = Delivery(AckState(Epoch(5, "eu"), Base()), DELAY_S)
    first, second = (MessageSet.of([MessageId("eu", 1, entry)]) for entry in range(2))
    consumer.settle(first, Answer(first), Epoch(5, "eu"), 0)
    own = AckState(Epoch(2, "us"), Base(), acked=second)
    assert consumer.received(own, switched=True)
    assert consumer.state == own
    assert consumer.take_unpublished() is None, "it belongs to the other one"
