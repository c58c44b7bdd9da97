"""Exchange of the consumers of one namespace in this process: what they tell of subscriptions, and what they are told. It has one publisher, one
flush, and one tail of each `__acks` log, however many they are (design section 6).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count

from geo.coordination.ownership import Ownership
from geo.delta.tail import REMOTE_LOOK_S, Tail, least_look_s
from geo.errors import AlreadyOwnedError, FencedError
from geo.faults import may_pass, session_is_gone
from geo.log.topic_log import open_log
from geo.streams import timetable
from geo.streams.life import Life, WorkEvent, backoff_s
from geo.subscription.acks.ack_publisher import AckPublisher, Told
from geo.subscription.acks.ack_tail import AckTail
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.fold import Fold, Received
from geo.subscription.acks.forgetting import Remembered
from geo.subscription.acks.gathered import by_key
from geo.subscription.acks.peer_acks import PeerAcks, fold_peers, peers_of
from geo.subscription.acks.record import key_of, told_unreadable
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.consumer.acknowledgements import Acknowledgements
from geo.subscription.consumer.settings import Settings
from geo.text import first_line

log = logging.getLogger(__name__)

FLUSH_SHARE = 4
"""Flushes take at most a quarter of the time."""


class ConsumerPart:
    """One consumer's part: what it has found out and not told, and what it is told. It owns its subscription as long as `ownership` does, and looks
    for messages each `every_s` seconds.
    """

    def __init__(self, settings: Settings, ownership: Ownership, acks: Acknowledgements, every_s: float) -> None:
        self.settings, self.ownership, self.acks, self.every_s = settings, ownership, acks, every_s
        self.key = key_of(settings.topic, settings.name)
        self.kept: SubscriptionState | None = None
        """State that is not known to be published: told again it changes nothing."""
        self.error: BaseException | None = None
        """Error after which it cannot go on."""
        self.news = threading.Event()
        """To be set when the consumer has found out something that is not to wait."""
        self._looked_at = time.monotonic()
        self._early: list[tuple[list[Received], bool]] | None = []
        """States that came before it knew what is known; None: it knows."""
        self._lock = threading.Lock()
        """Guards `kept` and `_early`."""

    def begin(self, state: SubscriptionState) -> None:
        """Take in what is known of the subscription at the start, then what was heard while it was read. Heard first, what a peer tells of before a
        reset would be taken for where the subscription begins, and told here."""
        self.acks.received(state)
        with self._lock:
            early, self._early = self._early or [], None
        for records, elsewhere in early:
            self.acks.handle(records, elsewhere=elsewhere)

    def keep(self, state: SubscriptionState) -> None:
        """To be published with the next flush."""
        with self._lock:
            self.kept = state if self.kept is None else self.kept | state

    def published(self, state: SubscriptionState) -> None:
        """Marks as published what was kept when a flush began; what was kept since stays."""
        with self._lock:
            if self.kept is state:
                self.kept = None

    def collect(self) -> None:
        """Keep what the consumer has found out; nothing once another one has taken the subscription over."""
        if (unpublished := self.acks.take_unpublished()) is not None:
            self.keep(unpublished)
        now = time.monotonic()
        if self.kept is not None or now - self._looked_at >= timetable.CONSUMER_LOOK_S:
            self._looked_at = now
            try:
                self.ownership.refuse_if_replaced()
            except FencedError as error:
                self.error, self.kept = self.error or error, None

    def handle(self, records: list[Received], *, elsewhere: bool) -> None:
        """Take in records of the subscription; `elsewhere`: they are not in this cluster yet."""
        with self._lock:
            if self._early is not None:
                self._early.append((records, elsewhere))
                return
        self.acks.handle(records, elsewhere=elsewhere)


class AckExchange:
    """From the first member that joins to the last that leaves. A record that could not be published is kept, and told again by a
    new publisher, which has found out what landed."""

    def __init__(self, settings: Settings) -> None:
        self._tables, self._config, self._topic = settings.tables, settings.config, settings.topic
        self.members: list[ConsumerPart] = []
        """Guarded by `_lock`."""
        self._flushing = threading.RLock()
        """One flush at a time, whichever thread it comes from; guards the publisher."""
        self._peers: list[PeerAcks] = []
        self._publisher: AckPublisher | None = None
        """None after an error: what it was to publish may or may not be in the log."""
        self.news, self._stop = threading.Event(), threading.Event()
        self._looks: list[threading.Event] = []
        """Events by thread that follows a log: to be set when it is to look at once."""
        self._hurried_at = -math.inf
        self._threads: list[threading.Thread] = []
        """But those that read peers, which may never answer."""
        self.error: BaseException | None = None
        """Error that ended its flush: nobody can join any more."""

    def __str__(self) -> str:
        return f"{self._topic.acks} in {self._tables.cluster.name}"

    # -- members ---------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open what its members need, once; the first of them does it. Raises what opening a publisher does."""
        with self._flushing:
            if self.error is not None:
                raise self.error
            if self._threads:
                return
            self._publisher = self._publisher or self._open()
            self._peers = peers_of(self._tables, self._config, self._topic.acks)
            self._own = open_log(self._tables, self._topic.acks)[0]
            self._tail = AckTail(Tail.at_newest(self._own))
            self._looks = [threading.Event() for _ in (self._own, *self._peers)]
            own, *others = (partial(_until, look) for look in self._looks)
            self._threads = [
                self._thread("flush", self._go_on, self._flush_due, "could not be published", ", their messages come again"),
                self._thread("tail", self._go_on, self._follow_own, "cannot be read", "", own),
            ]
            waits = zip(self._peers, others, strict=True)
            peers = [self._thread(peer.link.source, self._follow_peer, peer, wait) for peer, wait in waits]
            for thread in (*self._threads, *peers):
                thread.start()

    def _thread(self, name: str, loop: Callable[..., None], *given: object) -> threading.Thread:
        return threading.Thread(target=loop, args=given, name=f"geo-acks-{self._topic.namespace}-{name}", daemon=True)

    def end(self) -> None:
        """Nobody is left."""
        self._stop.set()
        self.news.set()
        self._look_now()
        for thread in self._threads:
            thread.join()
        with self._flushing:
            publisher, self._publisher = self._publisher, None
            if publisher is not None:
                publisher.close(clean=self.error is None)

    def known(self, member: ConsumerPart, *, in_spite: bool) -> SubscriptionState:
        """Collects what this cluster and its peers know of the member's subscription by now. What only peers know of where it begins is to be told
        here before anything that was acknowledged since. Peers are not asked of one that is, or will be, of this region only. Raises UnsafeError as
        `Known.state_of`, of what is here; what is refused of peers is logged, and counts once a link has replicated it.
        """
        topic, name = member.settings.topic, member.settings.name
        found = read_known(self._tables, topic, name)
        here = found.state_of(topic, name, in_spite=in_spite)
        known = found.all_of(topic, name)
        if known.is_regional if here is not None else not member.settings.is_replicated_if_new:
            return known
        fold = fold_peers(self._peers, member.key, Fold(self._tables.cluster.name, Remembered(known)))
        if told := told_unreadable(fold.refused):
            log.warning("%s: peers have records that cannot be read: %s", member.settings, told)
        known = fold.known.state
        if (state := known.here) is not None and (here is None or not state.begins_as(here)):
            member.keep(known.part(state.beginning))
        return known

    # -- telling ---------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Publish what members have found out, and what was kept, in one commit. A member whose subscription was taken over has
        its error, and publishes nothing more."""
        with self._flushing:
            members = self._now()
            for member in members:
                member.collect()
            telling = [(member, member.kept) for member in members if member.kept is not None]
            if not telling:
                return
            states = [(one.settings.topic, one.settings.name, state) for one, state in telling]
            try:
                self._publish(states)
            except FencedError:  # this process was silent, so another one is this producer now; nothing was written
                self._publish(states)
            for member, state in telling:
                member.published(state)

    def _publish(self, states: list[Told]) -> None:
        publisher = self._publisher or self._open()
        self._publisher = None
        try:
            publisher.publish(states)
        except BaseException:
            publisher.close(clean=False)
            raise
        self._publisher = publisher

    def _open(self) -> AckPublisher:
        """Opens the publisher, as the first producer that nobody is."""
        for number in count(1):
            with suppress(AlreadyOwnedError):
                return AckPublisher(self._tables, self._config, self._topic, f"acks-{number}")
        raise AssertionError("numbers end nowhere")

    def _go_on(
        self, step: Callable[[bool], float], fault: str, costs: str = "", wait: Callable[[float], object] | None = None
    ) -> None:
        """Do it again and again until the exchange ends, or it does not pass what went wrong: then its members have the error. A step is told
        whether the one before failed, and says how long to `wait` after it; None: until the exchange ends."""
        life = Life()
        while not self._stop.is_set():
            try:
                wait_s = step(life.tries > 0)
                life = Life()
            except BaseException as error:
                life = life.after(WorkEvent.FAULT, now=time.monotonic(), ends=True)  # however long each takes
                if _ends_it(error, life):
                    log.error("%s: acknowledgements %s%s: %s", self, fault, costs, first_line(error))
                    self._fail(error)
                    return
                wait_s = backoff_s(life.tries)
                log.warning("%s: acknowledgements %s, again in %.0f s: %s", self, fault, wait_s, first_line(error))
            (wait or self._stop.wait)(wait_s)

    def _flush_due(self, failed: bool) -> float:
        """Publish at once when the last time is long ago. Counts of redeliveries go along, or each timetable.COUNTS_S."""
        if not failed:
            self.news.wait(timetable.COUNTS_S)
        self.news.clear()
        begun = time.monotonic()
        self.flush()
        took = time.monotonic() - begun
        return max(timetable.FLUSH_S, FLUSH_SHARE * took) - took

    def _fail(self, error: BaseException) -> None:
        self.error = error
        for member in self._now():
            member.error = member.error or error

    # -- hearing ---------------------------------------------------------------------------------------------------------

    def has_messages(self, member: ConsumerPart) -> None:
        """The member has got messages: what of them is acknowledged elsewhere is looked for now, unless that was done a moment ago."""
        now = time.monotonic()
        if member.every_s > REMOTE_LOOK_S <= now - self._hurried_at:
            self._hurried_at = now
            self._look_now()

    def _look_now(self) -> None:
        for look in self._looks:
            look.set()

    def _look_every_s(self, least_s: float) -> float:
        """Between two looks at a log that may be looked at so often."""
        return look_every_s(least_s, [member.every_s for member in self._now()])

    def _hear(self, records: list[Received], *, elsewhere: bool) -> None:
        of_key = by_key(records)
        for member in self._now():
            if member.key in of_key:
                was_regional = member.acks.is_regional
                member.handle(of_key[member.key], elsewhere=elsewhere)
                if was_regional and not member.acks.is_regional:
                    for peer in self._peers:  # what they told meanwhile was not heard
                        peer.missed = True

    def _now(self) -> list[ConsumerPart]:
        with _lock:
            return list(self.members)

    def _keys(self) -> set[str]:
        return {member.key for member in self._now()}

    def _shared_keys(self) -> set[str]:
        """Keys of subscriptions that something which peers know may concern."""
        return {member.key for member in self._now() if not member.acks.is_regional}

    def _follow_own(self, failed: bool) -> float:
        """After a fault, or when the log is not what it was, all that is known is taken in."""
        if failed:
            self._own = self._tables.log(self._topic.acks)  # of a catalog it may be elsewhere now
            self._tail = AckTail(Tail.at_newest(self._own))
            known = read_known(self._tables, self._topic)
            for member in self._now():
                member.acks.received(known.all_of(member.settings.topic, member.settings.name))
        while (records := self._tail.next(self._keys)) is not None and not self._stop.is_set():
            self._hear(records, elsewhere=False)
        return self._look_every_s(least_look_s(self._own))

    def _follow_peer(self, peer: PeerAcks, wait: Callable[[float], object]) -> None:
        """Nothing that a peer has, or lacks, ends anything here: what it tells comes with its link."""
        tail: AckTail | None = None
        failed = 0
        asked_at = -math.inf
        ask_s = timetable.CONSUMER_PEER_LOOK_S if self._tables.is_near else timetable.REMOTE_CONSUMER_PEER_LOOK_S
        while not self._stop.is_set():
            try:
                if not self._shared_keys():  # nobody waits for what it tells
                    tail, asked_at = None, -math.inf
                    self._stop.wait(timetable.ACKS_LOOK_S)
                    continue
                wait_s = self._look_every_s(peer.least_look_s)
                if peer.missed and not peer.is_away:
                    peer.missed, tail, asked_at = False, None, -math.inf
                if time.monotonic() - asked_at >= ask_s:
                    asked_at = time.monotonic()
                    if not peer.may_be_read():
                        tail = None
                    elif tail is None:
                        tail, records = peer.begin(self._shared_keys())
                        self._hear(records, elsewhere=True)
                while tail is not None and (more := tail.next(self._shared_keys)) is not None and not self._stop.is_set():
                    self._hear(more, elsewhere=True)
                failed = 0
            except Exception as error:
                tail, failed, asked_at = None, failed + 1, -math.inf
                wait_s = backoff_s(failed)
                log.log(
                    logging.WARNING if failed == 1 else logging.INFO,
                    "%s: cannot be read, what it tells comes with the link; again in %.0f s: %s",
                    peer, wait_s, first_line(error),
                )  # fmt: skip
            wait(wait_s)


def look_every_s(least_s: float, every_s: Sequence[float]) -> float:
    """Time between two looks at an `__acks` log that may be looked at each `least_s` seconds, 0 where a look is no request. `every_s`: the seconds
    between the looks of its consumers for messages.
    """
    return max(timetable.ACKS_LOOK_S, least_s, min([timetable.ACKS_REST_S, *every_s]) if least_s else 0.0)


def _until(look: threading.Event, wait_s: float) -> None:
    look.wait(wait_s)
    look.clear()


def _ends_it(error: BaseException, life: Life) -> bool:
    """Tells whether a fault of the exchange ends its consumers: trying again does not help, or did not for long."""
    return not may_pass(error) or session_is_gone(error) or life.is_hopeless(time.monotonic())


_exchanges: dict[tuple[str, str], AckExchange] = {}
"""Those of this process, by the place of a cluster's tables and the `__acks` topic."""

_lock = threading.Lock()
"""Guards `_exchanges` and who their members are."""


def join(member: ConsumerPart) -> AckExchange:
    """The exchange of the member's namespace, begun. Raises what opening a publisher does; then the member is not in it."""
    place = (member.settings.tables.place, str(member.settings.topic.acks))
    with _lock:
        exchange = _exchanges.get(place)
        if exchange is None or exchange.error is not None:
            exchange = _exchanges[place] = AckExchange(member.settings)
        exchange.members.append(member)
        member.news = exchange.news
    try:
        exchange.begin()
    except BaseException:
        leave(exchange, member)
        raise
    return exchange


def leave(exchange: AckExchange, member: ConsumerPart) -> None:
    """The member is not in it any more; with the last one it ends."""
    with _lock:
        exchange.members.remove(member)
        if is_empty := not exchange.members:
            for place in [place for place, one in _exchanges.items() if one is exchange]:
                del _exchanges[place]
    if is_empty:
        exchange.end()
