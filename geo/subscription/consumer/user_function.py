"""Calls the user's function with a batch, in parts of at most `max_batch_bytes`, and finds out whose fault it is when it raises.

Which messages come is decided in `dispatcher.py`, which part of them comes next in `halving.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from random import Random
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.delta.small_batch import octets
from geo.errors import GeoError, RetryableError
from geo.faults import session_is_gone
from geo.ids import LedgerId, MessageId
from geo.log.topic_log import PUBLISH_ORDER
from geo.slices import slices
from geo.subscription.acks.ack_state import AckState, Epoch
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.message_set_frames import among, in_publish_order, message_ids
from geo.subscription.acks.record import key_of
from geo.subscription.consumer.attempt import Attempt
from geo.subscription.consumer.delivery import Answer
from geo.subscription.consumer.halving import Halving
from geo.subscription.consumer.in_hand import InHand, handing_out
from geo.subscription.consumer.settings import Settings
from geo.text import counted, first_line

log = logging.getLogger(__name__)

Listener = Callable[[DataFrame], DataFrame | None]
"""The user's function, as Pulsar's MessageListener: gets messages, returns those of them that are done. The same DataFrame: all;
None: none. With a column `redeliver_after` beside the ids (geo.subscription.consumer.answer) rows where it is NULL are done, the
others come again that much later. Without `max_redeliveries` what it raises ends the run; with it, it is called again with
parts of the batch, to find the message."""


Processed = Callable[[MessageSet, Answer, AckState, Mapping[MessageId, str] | None], None]
"""Handler of messages that were handed out in a state. Those that the answer does not name count as delivered in vain, or of them those alone that
are to blame, with what was raised.
"""


class UserFunction:
    """One consumer's. `ends`: the run is over, or begins elsewhere. `state`: what is known by now. `answer`: what a returned value
    says. What is not `processed` is wanted as before."""

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        attempt: Attempt | None,
        *,
        ends: Callable[[], bool],
        state: Callable[[], AckState],
        answer: Callable[[object, DataFrame, MessageSet], Answer],
        processed: Processed,
    ) -> None:
        self._settings, self._listener, self._attempt = settings, listener, attempt
        self._ends, self._state, self._answer, self._processed = ends, state, answer, processed
        self.failure: BaseException | None = None
        """Failure of the function, or of what it returned: it ends the run."""
        self._delayed: Exception | None = None
        """Its last error that no message is to blame for: the run tries again later."""
        self.works = False
        """It has done something since it last failed on everything."""
        self.control = False
        """Its last call passed, directly before: if it fails now on a message that comes alone, that message is to blame."""
        self.doubtful = MessageSet()
        """Messages that wait, on which it failed while nothing passed: they come again as soon as something has passed."""
        self.held: set[LedgerId] = set()
        """The ledgers of the log here, as far as it was seen."""
        self._unexplained: Exception | None = None
        """Its last error on what is `doubtful`."""
        self._failed_on_all = 0
        """Count of calls in which it failed on everything."""

    def take_delayed(self) -> Exception | None:
        """Its error that no message is to blame for and that has ended the last delivery; None: none has."""
        delayed, self._delayed = self._delayed, None
        return delayed

    @property
    def unexplained(self) -> Exception | None:
        """Its error on messages that wait, if it has passed nothing since; None: there is none."""
        return self._unexplained if self.doubtful and not self.works else None

    def process(self, messages: DataFrame, live: MessageSet, state: AckState) -> None:
        """Call it with `messages`, which are `live`, in publish order, whatever their size, and settle what it says. Raises what
        it does, if no message is to blame or none can be given up."""
        control = self.control
        found = self._call(messages, live, state.epoch)
        if isinstance(found, Answer):
            self._processed(live, found, state, None)
            return
        log.warning("%s: the function failed on %s: %s", self._settings, counted(live.size, "message"), first_line(found))
        ids = message_ids(in_publish_order(messages.select(*PUBLISH_ORDER).toArrow()))
        self._shuffle(ids)
        self._go_on(messages, Halving(ids, control=control), live, live, state, found)

    def process_in_parts(self, messages: DataFrame, live: MessageSet, state: AckState) -> None:
        """Processes as `process`, with no more than `max_batch_bytes` at once; a message that is larger comes alone."""
        size, most = octets(messages.schema), self._settings.max_batch_bytes
        if (messages.agg(F.sum(F.expr(size))).collect()[0][0] or 0) <= most:
            self.process(messages, live, state)
            return
        ids = in_publish_order(messages.select(*PUBLISH_ORDER, F.expr(size).alias("_octets")).toArrow())
        sized = zip(message_ids(ids), ids["_octets"].to_pylist(), strict=True)
        parts = [[one for one, _ in part] for part in slices(sized, lambda one: one[1], most)]
        self._shuffle(parts)
        self._go_on(messages, Halving(untried=parts, control=self.control), live, MessageSet(), state, None)

    def _shuffle(self, parts: list[Any]) -> None:
        """After it failed on everything: of many bad ones other parts may pass than the last time."""
        if self._failed_on_all:
            Random(self._failed_on_all).shuffle(parts)  # noqa: S311

    def _go_on(
        self,
        messages: DataFrame,
        halving: Halving,
        live: MessageSet,
        failed: MessageSet,
        state: AckState,
        error: Exception | None,
    ) -> None:
        """Deliver the parts of `messages`, which are `live`, as `halving` has them; so far `failed` did, with `error`. What passes is settled at
        once, and a message that is to blame counts as delivered in vain. If nothing passes and nobody is to blame, raises the error. What failed
        before, or came alone, waits for its redelivery instead and holds up nobody."""
        errors = dict.fromkeys(halving.blamed, "" if error is None else first_line(error))
        while (part := halving.part) is not None and not self._ends():
            now = self._state()
            if now.epoch != state.epoch:
                break
            these = MessageSet.of(part) - now.acked
            if not these:
                halving.dropped()
                continue
            found = self._call(among(messages, these), these, state.epoch)
            if isinstance(found, Answer):
                halving.passed()
                failed = failed - these
                self._processed(these, found, state, None)
            else:
                error = found
                halving.raised()
                failed = failed | these
                errors.update(dict.fromkeys(part if len(part) == 1 else (), first_line(error)))
        if error is not None and not halving.passed_any:
            self.works, self._failed_on_all = False, self._failed_on_all + 1
            if not halving.blamed and live.size > 1 and live - state.in_vain():
                self._delayed = error
                raise error
            failed = live  # what was not tried waits with them
            self.doubtful, self._unexplained = (self.doubtful | live) - MessageSet.of(halving.blamed), error
        self._processed(failed, Answer(), state, {one: errors[one] for one in halving.blamed})

    def _call(self, messages: DataFrame, these: MessageSet, epoch: Epoch) -> Answer | Exception:
        """Calls the function with `messages`, which are `these`. Returns its answer; or what it raised, in a run in which messages are given up. Any
        other error is the end of the run, and raised.
        """
        settings = self._settings
        batch = InHand(key_of(settings.topic, settings.name), messages, epoch, these, self._state().acked, self.held)
        self.control, self.doubtful = False, self.doubtful - these
        # Who waits for its turn has nothing in hand. A fault of the note is not the function's.
        with settings.turn, nullcontext() if self._attempt is None else self._attempt.of(these, epoch):
            try:
                with handing_out(batch):
                    returned = self._listener(messages)
                answer = self._answer(returned, messages, these)
            except RetryableError as error:  # one of this package's, in the function: no message is to blame
                self._delayed = error
                raise
            except Exception as error:
                if settings.max_redeliveries is not None and not isinstance(error, GeoError) and not session_is_gone(error):
                    return error
                self.failure = error
                raise
            except BaseException as error:
                self.failure = error
                raise
        self.works = self.control = True
        return answer
