"""Acknowledgements of one run of a consumer: what is known of its subscription, what is acknowledged, and what of that is to be published.

What is delivered when is decided in `delivery.py`, pure; what all regions share of a subscription is one value (`subscription_state.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from geo.errors import UsageError
from geo.ids import MessageId
from geo.log.topic_log import ID
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.fold import Fold, Received
from geo.subscription.acks.forgetting import Remembered
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.message_set_frames import (
    among,
    message_set,
)
from geo.subscription.acks.record import RecordRefusal, told_refusals
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.consumer.answer import answer_of
from geo.subscription.consumer.consumed import Consumed
from geo.subscription.consumer.delivery import Answer, Delivery
from geo.subscription.consumer.settings import Settings
from geo.text import counted

log = logging.getLogger(__name__)


class Acknowledgements:
    """State of the subscription as this run knows it. The run's thread settles what it delivered, others acknowledge by id, merge remote state, and
    take what is unpublished.

    `wake` is called when there is something to publish that is not to wait, `on_reset` when the subscription begins elsewhere than was known.
    """

    def __init__(self, settings: Settings, wake: Callable[[], None], on_reset: Callable[[], None]) -> None:
        self._settings, self._wake, self._on_reset = settings, wake, on_reset
        self._log = settings.tables.log(settings.topic)
        self.delivery = Delivery(AckState(), settings.redelivery_delay_s, settings.max_redeliveries)
        self._known = SubscriptionState()
        """All that records tell of it; how it is in this region, `delivery` knows better."""
        self.done = Consumed()
        self.errors: dict[MessageId, str] = {}
        """The error of each message that came alone and failed last, for its dead letter."""
        self.is_running = False
        """True while what is acknowledged will be published."""
        self.lock = threading.RLock()
        """Guards all of this."""

    def __str__(self) -> str:
        return str(self._settings)

    @property
    def state(self) -> AckState:
        return self.delivery.state

    @property
    def is_regional(self) -> bool:
        """Tells whether it is of this region only: nothing that peers know concerns it. Of one of which nothing is known yet it may."""
        return self._known.is_regional

    def received(self, known: SubscriptionState) -> None:
        """Take in what is known here."""
        with self.lock:
            self._take_in(self._known.with_here(self.state) | known, elsewhere=False)

    def _take_in(self, known: SubscriptionState, *, elsewhere: bool) -> None:
        """Takes in as `Delivery.received` all that is known with what has come."""
        before, self._known = self._known, known
        if self.delivery.received(known.here or AckState(), elsewhere=elsewhere, switched=known.turn != before.turn):
            if elsewhere:
                self._wake()
            self._on_reset()

    def handle(self, records: Sequence[Received], *, elsewhere: bool) -> None:
        """Take in records of it; `elsewhere`: they are not in this cluster yet."""
        with self.lock:
            fold = Fold(self._settings.tables.cluster.name, Remembered(self._known.with_here(self.state)))
            fold.add(records)
            self._take_in(fold.known.state, elsewhere=elsewhere)
        # After a reset what was acknowledged before it keeps coming for a while.
        usual = fold.refused.keys() <= {RecordRefusal.OLDER_EPOCH}
        if fold.refused and not (usual and elsewhere):
            log.log(logging.INFO if usual else logging.WARNING, "%s: records refused: %s", self, told_refusals(fold.refused))
        if not elsewhere:  # those count once the link has brought them
            self.count(Consumed(refused=fold.refused.total()))

    def take_unpublished(self) -> SubscriptionState | None:
        """Takes the state that is to be published; None: nothing. It counts as published from here on."""
        with self.lock:
            news = self.delivery.take_unpublished()
            return None if news is None else self._known.part(news)

    def acknowledge(self, ids: Iterable[MessageId]) -> int:
        """Acknowledges as `Subscription.acknowledge`."""
        with self.lock:
            self._refuse_over()
            epoch = self.state.epoch
        existing = self._existing(MessageSet.of(ids))
        with self.lock:
            self._refuse_over()  # it may have ended meanwhile
            self.settle(MessageSet(), Answer(existing), epoch, Consumed())
        return existing.size

    def _refuse_over(self) -> None:
        if not self.is_running:
            raise UsageError(f"{self}: no consumer is running; acknowledge() works only during a run.")

    def checked(self, returned: object, messages: DataFrame, live: MessageSet) -> Answer:
        """Checks the answer of the function, by what it returned of `messages`, which are `live`. Other messages it may acknowledge, and not delay."""
        answer = answer_of(returned, messages, live, self)
        if other := answer.acked - live:
            answer = replace(answer, acked=(answer.acked & live) | self._existing(other))
        if other := MessageSet.union(answer.delays.values()) - live:
            log.warning(
                "%s: the function delays %s that it was not given, which changes nothing: %.200s",
                self,
                counted(other.size, "message"),
                other,
            )
            self.count(Consumed(refused=other.size))
            answer = replace(answer, delays={delay_s: messages & live for delay_s, messages in answer.delays.items()})
        return answer

    def _existing(self, ids: MessageSet) -> MessageSet:
        """Those of the messages that are in the log, or are acknowledged already. The others are refused, and those that were delivered before the
        subscription began elsewhere and not since."""
        with self.lock:
            known = ids & (self.delivery.waiting | self.state.acked)
            outdated = ids & self.delivery.outdated
        if unknown := ids - known - outdated:
            known = known | message_set(among(self._log.read(), unknown).select(*ID).toArrow())
        if refused := ids - known:
            log.warning(
                "%s: %d acknowledgements refused, no such messages or of before a reset: %.200s", self, refused.size, refused
            )
            self.count(Consumed(refused=refused.size))
        return known

    def settle(
        self, handed_out: MessageSet, answer: Answer, epoch: Epoch, done: Consumed, blamed: Mapping[MessageId, str] | None = None
    ) -> None:
        """Settles as `Delivery.settle`, with what is told of those that are `blamed`. `done`: what to count beside the acknowledged."""
        acked = answer.acked
        with self.lock:
            news = (acked - self.state.acked).size if epoch == self.state.epoch else 0
            ids = None if blamed is None else MessageSet.of(blamed)
            self.delivery.settle(handed_out, answer, epoch, time.monotonic(), ids)
            self.count(replace(done, acknowledged=news))
            self.errors.update(blamed or {})
            for one in [one for one in self.errors if one in acked]:
                del self.errors[one]
        if acked:
            self._wake()

    def count(self, more: Consumed) -> None:
        with self.lock:
            self.done += more
