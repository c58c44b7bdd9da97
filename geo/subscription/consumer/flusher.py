"""Publishes what one consumer has found out, about once a second, and owns the subscription in its cluster."""

from __future__ import annotations

import logging
import threading
import time

from geo.faults import may_pass
from geo.streams.life import Event, Life
from geo.subscription.acks.ack_publisher import AckPublisher, consumer_name
from geo.subscription.acks.ack_state import AckState
from geo.subscription.consumer.dispatcher import Dispatcher
from geo.subscription.consumer.settings import Settings
from geo.text import first_line

log = logging.getLogger(__name__)

FLUSH_INTERVAL_S = 1.0
"""Between two records of one consumer. What was acknowledged after the last one is repeated if the process is killed."""

COUNTS_INTERVAL_S = 5.0
"""Between two records that tell only of redeliveries. After a kill as much of the counts is forgotten."""

_TRIES = 5
"""Records in a row that could not be published, over half a minute: after that it is the user's to see."""


class Flusher:
    """Owns the subscription from `open` to `close`; between `begin` and `end` a thread publishes.

    A record that could not be published is kept, and told again by a new publisher, which has found out what landed: landed
    twice it changes nothing.
    """

    def __init__(self, settings: Settings, dispatcher: Dispatcher) -> None:
        self._settings, self._dispatcher = settings, dispatcher
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"geo-acks-{settings.name}", daemon=True)
        self._publisher: AckPublisher | None = None
        """None after an error: what it was to publish may or may not be in the log."""
        self._kept: AckState | None = None
        """What is not known to be published."""
        self.error: BaseException | None = None
        """What ended the thread."""

    def open(self) -> None:
        """Raises AlreadyOwnedError."""
        self._open(take_over=self._settings.take_over)

    def publish(self, state: AckState) -> None:
        """Publish this, and what was kept, now."""
        self._kept = state if self._kept is None else self._kept | state
        if self._publisher is None:
            self._open(take_over=False)
        assert self._publisher is not None
        try:
            self._publisher.publish([(self._settings.topic, self._settings.name, self._kept)])
        except BaseException:
            self._let_go()
            raise
        self._kept = None

    def flush(self) -> None:
        """Publish what the dispatcher has for it, and what was kept."""
        unpublished = self._dispatcher.take_unpublished()
        if unpublished is not None or self._kept is not None:
            self.publish(unpublished or AckState())

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Let what is being published be published; nothing more is."""
        self._stop.set()
        self._dispatcher.has_unpublished.set()
        if self._thread.is_alive():
            self._thread.join()

    def close(self, *, tidy: bool) -> None:
        """Publish what is left and give the subscription back, unless a record may be in the log that is not counted. Not `tidy`:
        only let go."""
        flushed = False
        try:
            if tidy and self.error is None:
                self.flush()
                flushed = True
        finally:
            if self._publisher is not None:
                self._publisher.close(clean=flushed)

    def _open(self, *, take_over: bool) -> None:
        settings = self._settings
        name = consumer_name(settings.topic, settings.name)
        self._publisher = AckPublisher(settings.tables, settings.config, settings.topic, name, take_over=take_over)

    def _let_go(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close(clean=False)

    def _run(self) -> None:
        """Publish at once when the last time is long ago, else once in FLUSH_INTERVAL_S. Counts of redeliveries go along, or each
        COUNTS_INTERVAL_S."""
        life = Life()
        while not self._stop.is_set():
            self._dispatcher.has_unpublished.wait(COUNTS_INTERVAL_S)
            self._dispatcher.has_unpublished.clear()
            begun = time.monotonic()
            wait_s = FLUSH_INTERVAL_S
            try:
                self.flush()
            except BaseException as error:
                life = life.after(Event.FAULT, now=begun, reason=first_line(error))
                if not may_pass(error) or life.tries > _TRIES:
                    log.error("%s: acknowledgements could not be published: %s", self._settings, first_line(error))
                    self.error = error
                    return
                wait_s = max(wait_s, life.again_at - begun)
                log.warning(
                    "%s: acknowledgements could not be published, again in %.0f s: %s", self._settings, wait_s, first_line(error)
                )
                self._dispatcher.has_unpublished.set()
            self._stop.wait(max(0.0, wait_s - (time.monotonic() - begun)))
