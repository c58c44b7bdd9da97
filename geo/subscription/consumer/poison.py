"""Messages on which the function fails or its process dies: they are found in halves, come by themselves, and become dead letters in the end.

(Pulsar's DeadLetterPolicy; that a process dies is found out by what was noted before each batch.)
"""

from __future__ import annotations

import logging
from itertools import islice

from pyspark.sql import DataFrame

from geo.crash import CrashPoint, reach
from geo.subscription.acks.ack_state import Epoch
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.consumer.acknowledgements import Acknowledgements
from geo.subscription.consumer.attempt import Attempt
from geo.subscription.consumer.consumed import Consumed
from geo.subscription.consumer.dead_letters import DeadLetters
from geo.subscription.consumer.delivery import Answer
from geo.subscription.consumer.settings import Settings
from geo.text import counted

log = logging.getLogger(__name__)

MOST_ALONE = 16
"""Messages that failed before and are delivered alone, one after the other."""


class Poison:
    """Messages of one run that failed, or on which the last run died."""

    def __init__(self, settings: Settings, acks: Acknowledgements) -> None:
        self._settings, self._acks = settings, acks
        most = settings.max_redeliveries
        self._dead_letters = None if most is None else DeadLetters(settings, most)
        note = "-".join(["attempt", *settings.share.split()])
        place = settings.tables.checkpoint("consume", settings.topic.path, settings.name, note)
        self.attempt = None if most is None else Attempt(settings.tables.files, place)
        """Note of what the function has in hand."""
        self._suspects = MessageSet()
        """Messages that the last run had in hand when it died: each comes by itself, in halves."""

    def __str__(self) -> str:
        return str(self._settings)

    def begin(self) -> None:
        """Find out what the last run died on. It comes in halves, before the rest of its batch. If it was one message, that counts as a failure."""
        with self._acks.lock:
            epoch, acked = self._acks.state.epoch, self._acks.state.acked
        if self.attempt is None or not (died_on := self.attempt.died_on(epoch) - acked):
            return
        log.warning(
            "%s: the last run died while the function had %s in hand: %.200s",
            self,
            counted(died_on.size, "message"),
            died_on,
        )
        if died_on.size > 1:
            self._suspects = died_on
        else:
            why = "the process died while the function had it in hand"
            self._acks.settle(died_on, Answer(), epoch, Consumed(), dict.fromkeys(died_on, why))

    def has_begun(self) -> None:
        """Marks what `begin` found out as published."""
        if self.attempt is not None and not self._suspects:
            self.attempt.forget()

    def close(self, *, clean: bool) -> None:
        if self._dead_letters is not None:
            self._dead_letters.close(clean=clean)

    def groups(self, wanted: MessageSet, *, works: bool) -> list[MessageSet]:
        """Groups of a batch, each of which is handed out together.

        Of what the last run died on each half comes by itself, and first. (With the rest before it, two messages in two groups would kill in turn
        for ever.)

        Then what never failed, so that what did holds up nothing. Last what failed before. While the function works for others each comes alone,
        since together two bad ones would be nobody's fault. Else they come together, since the function may be away.
        """
        suspects = wanted & self._suspects
        self._suspects = self._suspects - suspects
        worn = MessageSet() if self._settings.max_redeliveries is None else (wanted - suspects) & self._acks.state.in_vain()
        alone = [MessageSet.of([one]) for one in islice(worn, MOST_ALONE)] if works else []
        together = worn - MessageSet.union(alone)
        return [group for group in (*suspects.halves(), wanted - suspects - worn, *alone, together) if group]

    def bury(self, rows: DataFrame, dead: MessageSet, epoch: Epoch) -> None:
        """Publish messages that are given up as dead letters, and acknowledge them. `rows`: exactly these."""
        assert self._dead_letters is not None, "only with max_redeliveries a message is given up"
        self._dead_letters.publish(rows, epoch, {one: self._acks.errors.pop(one, "") for one in dead})
        reach(CrashPoint.CONSUME_DEAD_LETTERED)
        self._acks.settle(dead, Answer(dead), epoch, Consumed(dead_lettered=dead.size))
