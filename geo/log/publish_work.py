"""A publisher's stream as a piece of work: begun again after a fault that may pass, also in a process that runs for months."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

from geo.config.publication import Publication
from geo.errors import GeoError
from geo.journal.event_rate import EventKind
from geo.journal.events import events_of
from geo.log.ledgers import Ledger, LedgerKey
from geo.log.other_producer import Continued
from geo.log.publish_stream import PublishStream, SourceStream
from geo.log.publisher import Published
from geo.streams.life import Life, State, Why
from geo.streams.life_events import LifeEvents
from geo.streams.query_work import QueryWork, QueryWorks
from geo.streams.share import ALL, Share
from geo.streams.supervisor import Supervisor, log_fault
from geo.streams.work import Found, Group, WorkReport
from geo.text import counted

log = logging.getLogger(__name__)


Begin: TypeAlias = Callable[[bool, Callable[[], bool]], PublishStream]
"""Starts a producer's stream. WorkReport whether to take the producer over from an owner that lives, and how to ask whether it is stopped."""


class Publishing:
    """Runs one publisher's stream; `run` until it is done or stopped.

    `begin` starts the stream, as a `QueryWork`'s.
    """

    def __init__(
        self,
        begin: Begin,
        what: Publication,
        *,
        once: bool,
        take_over: bool = False,
        lives: LifeEvents | None = None,
    ) -> None:
        """`lives`: notes what becomes of it."""
        self._lives, self._ends = lives, once
        self.work = PublishWork(begin, what, once=once, take_over=take_over)
        self.life = Life()
        """The place where it is in its life; its reason and error are those of the last fault."""
        self._supervisor = Supervisor[PublishWork]([OneProducer(self.work)], once=once, on_change=self._changed)

    def stop(self) -> None:
        """Let the running batch end, then stop; callable from a signal handler."""
        self._supervisor.stop()

    def status(self) -> str:
        """Its state, and why."""
        return self.life.state.value + (f": {self.life.reason}" if self.life.reason else "")

    def _changed(self, group: Group[PublishWork], work: PublishWork | None, life: Life) -> None:
        self.life = life
        if self._lives is not None:
            self._lives.note_work(group, work, life)
        if life.error is None:
            if not self._ends:
                log.info("%s: %s", self.work, life.state.value, extra={"event": life.state.value, "work": str(self.work)})
            return
        log_fault(group, work, life)
        if life.state is State.FAILED or not self.work.has_begun:
            self.stop()  # there is nothing else to run, and whoever starts it wants to know

    def run(self) -> Published:
        """Publish until stopped, or with the available-now trigger all there is. Returns what was published by then.

        Raises what the first start does, and what a person must see to. Raises the fault that it is in when it is stopped or gives up.
        """
        for _, _, life in self._supervisor.run():
            if life.state in (State.FAILED, State.DELAYED):
                raise life.error or GeoError(f"{self.work}: {life.reason}")
        return self.work.published


class PublishWork(QueryWork[PublishStream]):
    """One producer's stream, as often as it is begun."""

    def __init__(self, begin: Begin, what: Publication, *, once: bool, take_over: bool = False) -> None:
        super().__init__(begin, what.topic, once=once, take_over=take_over)
        self.what = what
        self.began_at: Mapping[LedgerKey, Ledger] = {}
        """Ends of its ledgers before it published anything."""
        self.continued: Sequence[Continued] = ()
        """The place where it went on for a producer of another cluster when it began."""
        self._before = Published()
        """Counts of the streams before this one."""
        self._rejects_file: str | None = None
        self._first_reject: str | None = None

    def __str__(self) -> str:
        return self.what.name

    @property
    def has_begun(self) -> bool:
        """It was owned once."""
        return self.lease.last is not None

    @property
    def published(self) -> Published:
        last = self.lease.last  # another thread may ask
        return self._before if last is None else self._before + last.published

    @property
    def rejects_file(self) -> str | None:
        """The newest file of rejects."""
        last = self.lease.last
        return (last.rejects_file if last is not None else None) or self._rejects_file

    @property
    def first_reject(self) -> str | None:
        """Place and reason of the first row that was rejected."""
        last = self.lease.last
        return self._first_reject or (last.first_reject if last is not None else None)

    @property
    def ends(self) -> Mapping[LedgerKey, Ledger]:
        """The ledgers as far as they reach."""
        last = self.lease.last
        return {} if last is None else last.publisher.writer.ends

    def note(self, opened: PublishStream) -> None:
        if not self.has_begun:
            self.began_at = opened.began_at
            self.continued = opened.continued if isinstance(opened, SourceStream) else ()
            if self.continued:
                events_of(opened.publisher.tables).note(
                    EventKind.FAILOVER, str(self), "goes on for the producer of another cluster", topic=self.topic,
                    reason=f"{counted(len(self.continued), 'source partition')}, {sum(one.may_repeat for one in self.continued)} may repeat",
                )  # fmt: skip
        self._before, self._rejects_file, self._first_reject = self.published, self.rejects_file, self.first_reject

    @property
    def progress_marker(self) -> int | None:
        return self.published.commits or None

    def give_up(self, owned: PublishStream, state: State, why: Why) -> None:
        if state is not State.FAILED or self.lease.is_replaced:
            super().give_up(owned, state, why)
        else:
            # So that the person who must see to it can have the producer, unless it is not known of an append whether it landed.
            self.lease.give_back()
            owned.publisher.writer.close()


class OneProducer(QueryWorks[PublishWork]):
    """The group of one piece of work."""

    def __init__(self, work: PublishWork, share: Share = ALL) -> None:
        super().__init__(share)
        self.work = work

    def __str__(self) -> str:
        return str(self.work)

    def discover(self, known: Mapping[Hashable, tuple[PublishWork, State]]) -> Found[PublishWork]:
        return self._found(known, [] if known else [("publisher", self.work)])

    def report(self, work: PublishWork | None) -> WorkReport:
        what, done = self.work.what, self.work.published
        fields = {"topic": str(what.topic), "cluster": what.cluster, "producer": what.producer, "published": done.rows,
                  "rejected": done.rejected, "rejects_file": self.work.rejects_file}  # fmt: skip
        return WorkReport(what.name, done.rows, fields)
