"""What is kept, without Spark: of PIP-33 for a topic, what additions to a cache of snapshots take and how large the state of a controller gets; of
what is acknowledged, what a subscription's state takes with all ledgers that ever were and without those that have expired."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from geo.ids import LedgerId, Position
from geo.log.ledgers import ledger_id
from geo.subscription.acks.ack_state import AckState
from geo.subscription.acks.cursor import ends_as_text, parse_ends
from geo.subscription.acks.forgetting import DAY_US, Remembered
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.record import decode_all, encode_all
from geo.subscription.acks.subscription_state import SubscriptionState
from geo.subscription.pip33.controller import TopicController
from geo.subscription.pip33.controller_rows import FinishedUpTo, MarkerRow, Subscribed, Tick
from geo.subscription.pip33.markers import SnapshotTaken, encode
from geo.subscription.pip33.snapshot_cache import Snapshot, SnapshotCache

TOPIC = "persistent://shop/web/clicks"
_MAX_CACHED = 30
_BEGAN_US, _APART_US = 1_800_000_000_000_000, 10_000_000
_SAMPLES = 20


def states(additions: int, snapshots: int, subscriptions: int) -> Iterator[str]:
    """A line for each case, as it is measured."""
    yield f"{additions:,} additions to a cache of {_MAX_CACHED}, advanced behind each hundredth: {_additions_s(additions):.1f} s"
    few = subscriptions // 100
    for what, count, every, finishes in (
        (f"{few:,} subscriptions, of which one finishes a version with each snapshot", few, 0, True),
        (f"{subscriptions:,} that all wait", subscriptions, 0, False),
        (f"{subscriptions:,} that came one with each snapshot, and all wait", subscriptions, 1, False),
    ):
        yield f"state of a topic of three clusters in {snapshots:,} snapshots, {what}: {_Controller(count, every, finishes).largest(snapshots)}"


def forgotten(ledgers: int, ttl_days: int) -> Iterator[str]:
    """Ledgers that ended one after the other in a thousand days, all acknowledged."""
    first = today = _BEGAN_US // DAY_US
    days: dict[LedgerId, int] = {}
    for number in range(ledgers):
        today = first + number * 1000 // ledgers
        days[LedgerId("eu", ledger_id(today * DAY_US // 1_000_000, number % 2**20))] = today
    whole = Remembered(SubscriptionState(AckState(acked=MessageSet(dict.fromkeys(days, ((0, 999),))))), days)
    held = [ledger for ledger, day in days.items() if today - day <= ttl_days]
    began = time.process_time()
    left = whole.forgetting(held, today, ttl_days)
    took_s = time.process_time() - began
    for what, state in (("all that ever were", whole), (f"without what has expired, forgotten in {took_s:.1f} s", left)):
        parts = list(state.by_age(today, ttl_days))
        size, batch_s = _batch(state, today)
        yield (
            f"{ledgers:,} ledgers in a thousand days, TTL {ttl_days} days, {what}: {len(state.days):,} ledgers, state {size / 1e6:.2f} MB, "
            f"{len(parts)} compact records of {sum(len(encode_all(part, limited=False)) for part, _ in parts) / 1e6:.2f} MB, "
            f"a batch of the fold {batch_s:.2f} s"
        )


def _batch(state: Remembered, today: int) -> tuple[int, float]:
    """The bytes of a state, and the seconds that a fold takes to read it from its cursor, take in an acknowledgement, and make the next cursor."""
    told, texts = encode_all(state.state, limited=False), ends_as_text(state.days)
    news = LedgerId("eu", ledger_id(today * DAY_US // 1_000_000, 2**20 - 1))
    began = time.process_time()
    before = Remembered(decode_all(told, limited=False), parse_ends(texts)).dated(today)
    after = before | Remembered(SubscriptionState(AckState(acked=MessageSet({news: ((0, 9),)}))), {news: today})
    assert after.is_news(before, today, 30)
    encode_all(after.state, limited=False)
    ends_as_text(after.days)
    return len(told), time.process_time() - began


def _additions_s(additions: int) -> float:
    cache = SnapshotCache(_MAX_CACHED)
    snapshots = [
        Snapshot(f"us:{TOPIC}:{number}", Position.end(number), {"eu": Position.end(number)}) for number in range(additions)
    ]
    began = time.perf_counter()
    for number, snapshot in enumerate(snapshots):
        cache.add(snapshot)
        if number % 100 == 99:
            cache.advance(Position.end(number - 50))
    return time.perf_counter() - began


class _Controller:
    """One that hears of snapshot after snapshot, and of a subscription with each `every`th; 0: of all before the first."""

    def __init__(self, subscriptions: int, every: int, finishes: bool) -> None:
        self._controller = TopicController("us", TOPIC)
        self._subscriptions, self._every, self._finishes = subscriptions, every, finishes
        self._seq = 0

    def largest(self, snapshots: int) -> str:
        bytes_, different, seconds = 0, 0, 0.0
        self._controller.handle(Tick(self._next(), _BEGAN_US / 1e6, None, ("ap", "eu")))  # without one no snapshot counts
        for number in range(snapshots):
            self._subscribe(number)
            self._take(number)
            if self._finishes:
                name = f"subscription-{number % self._subscriptions}"
                self._controller.handle(FinishedUpTo(self._next(), name, max(0, 3 * (number - number % 97))))
            if (number + 1) % max(1, snapshots // _SAMPLES) == 0:
                began = time.perf_counter()
                state = json.dumps(self._controller.to_state(), separators=(",", ":"))
                again = TopicController.from_state("us", TOPIC, kept := json.loads(state))
                took = time.perf_counter() - began
                assert again.to_state() == self._controller.to_state()
                if len(state) > bytes_:
                    bytes_, different, seconds = len(state), len(kept["snapshots"]), took
        assert different
        return (
            f"at most {bytes_ / 1e3:,.0f} kB, with {different:,} different snapshots; written and read in {seconds * 1e3:,.0f} ms"
        )

    def _subscribe(self, number: int) -> None:
        there = len(self._controller.subscriptions)
        wanted = self._subscriptions if not self._every else min(self._subscriptions, number // self._every + 1)
        for name in range(there, wanted):
            self._controller.handle(Subscribed(self._next(), f"subscription-{name}"))

    def _take(self, number: int) -> None:
        """A snapshot in the third commit after the last one: two that its requests and answers make, and one of messages."""
        version, began_us = 3 * (number + 1), _BEGAN_US + number * _APART_US
        places = {name: Position.end(version) for name in ("ap", "eu")}
        taken = SnapshotTaken(Snapshot(f"us:{TOPIC}:{began_us}", Position.end(version - 1), places, began_us), self._seq, version)
        self._controller.handle(MarkerRow(self._next(), "SNAPSHOT", encode(taken), "us", Position(version, 0), version))

    def _next(self) -> int:
        self._seq += 1
        return self._seq
