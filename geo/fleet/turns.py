"""Shares out the batches of a link among its topics, for the threads that replicate them: slots by `fetchers.py`, rates by `rate.py`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from geo.config.model import Config, DispatchRate, Link
from geo.fleet.fetchers import Fetchers
from geo.fleet.rate import Allowance
from geo.names import Topic
from geo.replication.turns import TURN_BYTES, Most
from geo.streams.workers import waiting

_STOP_LOOK_S = 0.1
"""Seconds between two looks of whoever waits, whether it is stopped."""

_OFFERED_S = 5.0
"""A turn that was offered and that nobody begins is another's: the topic may be gone. Works are looked at some times a second."""


class LinkTurns:
    """The turns of one link's topics. `rate_of` says how much of a topic may come per second. For any number of threads, of which
    one at a time asks for the same topic."""

    def __init__(self, num_fetchers: int, rate_of: Callable[[Topic], DispatchRate]) -> None:
        self._changed = threading.Condition()
        self._fetchers, self._rate_of = Fetchers(num_fetchers), rate_of
        self._allowances: dict[Topic, Allowance] = {}
        self._holders: dict[Topic, object] = {}
        """The one who has the turn of a topic, or waits for it, by topic; somebody else once that one was left."""
        self._offered: dict[Topic, float | None] = {}
        """Topics that wait in line without anybody who waits: since when it is their turn, None while it is not."""

    def change(self, num_fetchers: int, rate_of: Callable[[Topic], DispatchRate]) -> None:
        """From now on so many at once, at such rates; what is under way ends as it began."""
        with self._changed:
            self._rate_of = rate_of
            self._fetchers.resize(num_fetchers)
            self._begin()

    def wait_s(self, topic: Topic) -> float:
        with self._changed:
            return self._allowance(topic).wait_s(time.monotonic())

    def most(self, topic: Topic) -> Most:
        with self._changed:
            return most_of(self._allowance(topic))

    def offer(self, topic: Topic) -> bool:
        with self._changed:
            if topic not in self._offered:
                if topic in self._holders:
                    return False
                self._offered[topic] = None
                self._fetchers.ask(topic)
            self._begin()
            return self._offered.get(topic) is not None  # it may have come too late for its offer

    @contextmanager
    def turn(self, topic: Topic, stopped: Callable[[], bool]) -> Iterator[bool]:
        """Waits for the rate, then in the line of the topic's fetcher: what is owed holds up nobody else."""
        with waiting():
            wait_for_rate(partial(self.wait_s, topic), stopped)
        mine = object()
        try:
            yield self._ask(topic, mine, stopped)
        finally:
            self._end(topic, mine)

    def took(self, topic: Topic, messages: int, size: int) -> None:
        with self._changed:
            self._allowance(topic).took(messages, size, time.monotonic())

    def leave(self, topic: Topic) -> None:
        with self._changed:
            self._holders.pop(topic, None)
            self._offered.pop(topic, None)
            self._fetchers.remove(topic)
            self._begin()

    def _ask(self, topic: Topic, mine: object, stopped: Callable[[], bool]) -> bool:
        with self._changed:
            self._holders[topic] = mine
            if topic in self._offered:
                del self._offered[topic]
            else:
                self._fetchers.ask(topic)
                self._begin()
            with waiting():
                while self._holders.get(topic) is mine and not stopped():
                    if topic in self._fetchers.on_turn:
                        return True
                    self._changed.wait(_STOP_LOOK_S)
                    self._begin()
            return False

    def _end(self, topic: Topic, mine: object) -> None:
        with self._changed:
            if self._holders.get(topic) is mine:
                del self._holders[topic]
                self._fetchers.remove(topic)
                self._begin()

    def _begin(self) -> None:
        """Wake those whose turn begins, and take it from those who did not begin it when it was offered."""
        now = time.monotonic()
        for topic in [topic for topic, since in self._offered.items() if since is not None and now - since > _OFFERED_S]:
            del self._offered[topic]
            self._fetchers.remove(topic)
        for topic in (begun := self._fetchers.begin()):
            if topic in self._offered:
                self._offered[topic] = now
        if begun:
            self._changed.notify_all()

    def _allowance(self, topic: Topic) -> Allowance:
        """The allowance of a topic at the rate that holds now; another rate begins again. None is kept for topics without a rate."""
        rate, known = self._rate_of(topic), self._allowances.get(topic)
        if known is not None and known.rate == rate:
            return known
        fresh = Allowance(rate, time.monotonic())
        self._allowances.pop(topic, None)
        if rate != DispatchRate():
            self._allowances[topic] = fresh
        return fresh


def most_of(allowance: Allowance) -> Most:
    """Limit of a turn, by its rate."""
    size = allowance.turn_bytes
    return Most(allowance.turn_messages, TURN_BYTES if size is None else min(TURN_BYTES, size))


def wait_for_rate(wait_s: Callable[[], float], stopped: Callable[[], bool]) -> bool:
    """Wait until the rate allows more: until `wait_s` says 0. False: it is stopped."""
    while not stopped():
        if (left_s := wait_s()) <= 0:
            return True
        time.sleep(min(left_s, _STOP_LOOK_S))
    return False


def turns_of(link: Link, config: Config) -> LinkTurns:
    """The turns of a link's topics, as the configuration has them."""
    return LinkTurns(link.num_fetchers, partial(config.dispatch_rate, link))
