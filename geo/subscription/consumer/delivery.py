"""Messages that one consumer has in hand: which it delivers, delivers again, or gives up, and what it has to publish. Pure.

Invariants, asserted by the tests after each step:
- A a message is delivered only if it is not acknowledged and not waiting for its redelivery;
- B what is acknowledged was delivered in this epoch, or named by a record;
- C what was delivered in an epoch that has passed changes nothing in the next, until it is handed out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil

from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.message_set import MessageSet

_TENTHS = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of the user's function about messages: which are done, and by delay in seconds which are to come again after it. No message is in two of
    these sets; a delay is only of messages that it was given.
    """

    acked: MessageSet = field(default_factory=MessageSet)
    delays: Mapping[int, MessageSet] = field(default_factory=dict)


@dataclass(slots=True)
class Delivery:
    """Times are seconds of any clock that does not go back."""

    state: AckState
    redelivery_delay_s: float
    max_redeliveries: int | None = None
    waiting: MessageSet = field(default_factory=MessageSet)
    """Delivered and not acknowledged: they are delivered again when their time has come."""
    outdated: MessageSet = field(default_factory=MessageSet)
    """Delivered before the last reset and not since; acknowledgements of these belong to the old epoch and are refused."""
    _out: MessageSet = field(default_factory=MessageSet)
    """Ripe or handed out, and not settled."""
    _due: dict[int, MessageSet] = field(default_factory=dict)
    """Messages that wait, by when they are ripe, in tenths of a second. What does not wait any more may be among them."""
    _times: list[int] = field(default_factory=list)
    """The keys of `_due`, as a heap."""
    _unpublished: AckState | None = None
    """State that this consumer has found out and not yet published."""

    def wanted(self, present: MessageSet, early: MessageSet | None = None) -> MessageSet:
        """Chooses, of the messages at hand, those to be delivered or given up now. `early`: those of them that were published before the time of the
        base, if it has one.
        """
        wanted, base = present - self.done - self.waiting, self.state.base
        return wanted if early is None or base is None else wanted - base.decided_by_time(early)

    def given_up(self, messages: MessageSet) -> MessageSet:
        """Those of them that were delivered in vain often enough: they go to the dead letter topic."""
        if self.max_redeliveries is None or len(self.state.redelivered) <= self.max_redeliveries:
            return MessageSet()
        return messages & self.state.in_vain(self.max_redeliveries + 1)

    def hand_out(self, messages: MessageSet) -> None:
        """The user's function gets them now, or they are given up."""
        self._out, self.outdated = self._out | messages, self.outdated - messages

    def settle(self, delivered: MessageSet, answer: Answer, epoch: Epoch, now: float, blamed: MessageSet | None = None) -> None:
        """`delivered` were handed out in `epoch`, and those of them, or of what waited, that the answer has as acknowledged are
        done. Of the others it counts as in vain for all, or for those that are `blamed`. They come again after the delay that the
        answer has for them, else after `redelivery_delay_s`."""
        acked = answer.acked
        self._out = self._out - delivered
        if epoch != self.state.epoch:
            return
        left = delivered - acked - self.state.acked
        self._learn(AckState(epoch, acked=acked))
        if left:
            self._learn(self.state.once_more(left if blamed is None else left & blamed))
            self._wait(now + self.redelivery_delay_s, left - MessageSet.union(answer.delays.values()))
            for delay_s, messages in answer.delays.items():
                self._wait(now + delay_s, messages)
        self.waiting = (self.waiting | left) - acked

    def take_back(self, messages: MessageSet) -> None:
        """They were handed out, and nobody did anything with them: they are wanted as before."""
        self._out = self._out - messages

    def due(self, now: float) -> MessageSet:
        """Takes the messages to be delivered again now, or given up. They do not wait any longer."""
        passed = []
        while self._times and self._times[0] <= now * _TENTHS:
            passed.append(self._due.pop(heappop(self._times)))
        if not passed:  # as nearly always: it is asked twenty times a second
            return MessageSet()
        ripe = MessageSet.union(passed) & self.waiting
        self.waiting, self._out = self.waiting - ripe, self._out | ripe
        return ripe

    def received(self, state: AckState, *, elsewhere: bool = False, switched: bool = False) -> bool:
        """Take in what records say. Returns whether the subscription begins elsewhere now: what was not delivered may be wanted. Records that are
        `elsewhere`, in another cluster and not yet here, are to be published here, before anything that is acknowledged from now on. `switched`: it
        became regional or replicated, and `state` is what is known of it as that. What this consumer knows of the same epoch and that does not tell
        is told again. So nothing is lost on the way.
        """
        before, self.state = self.state, state if switched and state.epoch != self.state.epoch else self.state | state
        if switched and self.state.epoch == before.epoch:
            self._unpublished = None
            told = AckState(before.epoch, before.base, acked=before.acked - state.acked, redelivered=before.redelivered)
            if state | told != state:
                self._publish(told)
        if self.state.epoch != before.epoch:
            self.outdated = self.outdated | self.waiting | self._out
            self.waiting, self._due, self._times, self._unpublished = MessageSet(), {}, [], None
        else:
            self.waiting = self.waiting - self.state.acked
        begins_elsewhere = not self.state.begins_as(before)
        if elsewhere and begins_elsewhere:
            self._publish(self.state.beginning)
        return begins_elsewhere

    def take_unpublished(self) -> AckState | None:
        """Takes the state that is to be published; None: nothing. It counts as published from here on."""
        unpublished, self._unpublished = self._unpublished, None
        return unpublished

    def recall(self, messages: MessageSet) -> MessageSet:
        """Those of them that wait, to be delivered again now. They do not wait any longer."""
        found = messages & self.waiting
        if found:
            self._due = {at: waiting - found for at, waiting in self._due.items()}
            self.waiting, self._out = self.waiting - found, self._out | found
        return found

    def _wait(self, until: float, messages: MessageSet) -> None:
        at = ceil(until * _TENTHS)
        if at not in self._due:
            heappush(self._times, at)
        self._due[at] = self._due.get(at, MessageSet()) | messages

    @property
    def done(self) -> MessageSet:
        """Messages that are acknowledged, or left out from the beginning."""
        state = self.state
        return state.acked if state.base is None else state.acked | state.base.below_floors

    def _learn(self, news: AckState) -> None:
        self.state = self.state | news
        if news.acked or news.redelivered:
            self._publish(news)

    def _publish(self, news: AckState) -> None:
        self._unpublished = news if self._unpublished is None else self._unpublished | news
