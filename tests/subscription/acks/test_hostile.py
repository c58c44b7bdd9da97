"""A peer that writes what it likes into its `__acks`: nothing stops, and what it writes counts as what it is or not at all."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from geo.delta.appending import append_rows
from geo.delta.arrow_rows import rows_table
from geo.ids import LedgerId
from geo.log.topics import create_topic
from geo.now import now_us
from geo.schemas import CURSORS, TOPIC_LOG
from geo.subscription.acks.ack_state import AckState, merged
from geo.subscription.acks.acks_topic import read_known
from geo.subscription.acks.fold import Fold, Received, longest_end
from geo.subscription.acks.gathered import gather_all
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.namespace_folds import Folding
from geo.subscription.acks.record import encode, key_of
from geo.times import from_us
from tests.examples import examples
from tests.subscription.acks.test_ack_state import states
from tests.subscription.consuming import NAME, consume, ids
from tests.world import TOPIC, World

KEY = key_of(TOPIC, NAME)
NOW_US = 1_800_000_000_000_000
_A_TIME = 300
"""Records of an example."""


def _worst(random: Random, state: AckState) -> bytes:
    """A real encoding, changed: bits, a piece left out, doubled, or of another kind, numbers as large as there are."""
    payload = bytearray(encode(state))
    for _ in range(random.randint(1, 4)):
        at, end = sorted((random.randrange(len(payload) + 1), random.randrange(len(payload) + 1)))
        match random.randrange(5):
            case 0 if payload:
                payload[random.randrange(len(payload))] ^= 1 << random.randrange(8)
            case 1:
                del payload[at:end]
            case 2:
                payload[at:at] = payload[at:end]
            case 3:
                payload[at:end] = b"\xff" * random.randint(1, 12)
            case _:
                payload[at:at] = random.randbytes(random.randint(1, 8))
    return bytes(payload)


def _key(random: Random) -> str | None:
    return random.choice([KEY, KEY, KEY, None, "", "no key", f"{TOPIC}/", f"{TOPIC}/ü", KEY + "\0", "persistent://shop/web/*/x"])


def _time(random: Random) -> int:
    return random.choice([NOW_US, NOW_US, NOW_US, 0, -1, -(2**62), 2**62])


@settings(max_examples=examples(0.4))
@given(st.lists(states(), min_size=1, max_size=5), st.integers(0, 2**32))
def test_of_ten_thousand_records_each_counts_as_the_state_that_it_is_or_is_refused_with_a_reason(
    found: list[AckState], seed: int
) -> None:
    random = Random(seed)
    records = [_received(_worst(random, random.choice(found)), _key(random), _time(random)) for _ in range(_A_TIME)]
    alone = {id(record): _folded(record) for record in records}
    assert all(fold.refused.total() == (0 if fold.known.state.states else 1) for fold in alone.values())
    honest = AckState(acked=MessageSet({LedgerId("eu", 1): ((0, 5),)}))
    together = gather_all("eu", [*records, _received(encode(honest))], {})[KEY].told.state.here
    of_key = [state for record in records if record.key == KEY for state in alone[id(record)].known.state.states]
    assert together is not None
    assert together == merged([honest, *of_key])
    for (_, ledger_id), ranges in together.acked.ledgers.items():
        assert ranges[-1][1] <= longest_end(ledger_id, NOW_US)


def _received(payload: bytes, key: str | None = KEY, at_us: int = NOW_US) -> Received:
    return Received(LedgerId("us", 77), 0, key, payload, at_us)


def _folded(*records: Received) -> Fold:
    fold = Fold("eu")
    fold.add(records)
    return fold


def _counts(payload: bytes) -> bool:
    return bool(_folded(_received(payload)).known.state.states)


@pytest.mark.spark
def test_a_hundred_of_the_worst_in_a_peers_log_stop_no_start_no_link_no_consumer_and_no_fold(
    spark: SparkSession, linked: World
) -> None:
    """They cross, are folded, and are met again. No valid record of this subscription is among them, so nothing of it may
    change."""
    consume(linked, "eu", "origin = 'eu'")
    random, now = Random(7), from_us(now_us())
    state = AckState(acked=MessageSet.of(ids("eu", 0, 20)))
    rows: list[dict[str, Any]] = [
        {
            "origin": "us", "ledger_id": 77, "entry_id": entry, "publish_time": now, "producer": "forger",
            "key": random.choice([None, "", "no key", f"{TOPIC}/", f"{TOPIC}/other", KEY + "\0", KEY]),
            "payload": _worst(random, state), "publish_date": now.date(),
        }
        for entry in range(100)
    ]  # fmt: skip
    endless = encode(AckState(acked=MessageSet({LedgerId("eu", 1): ((0, 2**62),)})))
    for row in rows[::3]:
        row["key"], row["payload"] = KEY, endless if row["entry_id"] % 2 else row["payload"]
    for row in rows:
        while row["key"] == KEY and _counts(row["payload"]):  # none of this subscription's may
            row["payload"] = _worst(random, state)
    create_topic(linked.tables("us"), TOPIC.acks)
    append_rows(linked.log("us", TOPIC.acks), rows_table(TOPIC_LOG.types, rows))
    linked.replicate("eu")
    for cluster in ("eu", "us"):
        folded = Folding(spark, linked.config, cluster).run()
        assert not folded.unfinished
    alone = _folded(*(_received(row["payload"]) for row in rows if row["key"] == KEY))
    (cursor,) = linked.tables("eu").journal(CURSORS).newest(topic=str(TOPIC), subscription=NAME)
    assert cursor["refused"] == {reason.value: count for reason, count in alone.refused.items()}, "each, with its reason"
    assert len(cursor["refused"]) > 1
    known = read_known(linked.tables("eu"), TOPIC, NAME)
    assert known.states[KEY].acked == MessageSet.of(ids("eu", 0, 20))
    assert set(consume(linked, "eu").ids) == set(ids("us", 0, 20)), "nothing unacknowledged is skipped, nothing comes again"
