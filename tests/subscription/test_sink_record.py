"""What the commits of a sink say of a subscription."""

from __future__ import annotations

import pytest

from geo.delta.commits import Commit
from geo.errors import UnsafeError
from geo.ids import LedgerId
from geo.log.ledgers import ledger_id
from geo.subscription import sink_record
from geo.subscription.acks.ack_state import Epoch
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.sink_record import SinkRecord, newest_of

EPOCH = Epoch(2, "eu")


def _set(ledger: int, end: int) -> MessageSet:
    return MessageSet({LedgerId("eu", ledger): ((0, end),)})


def _record(number: int, end: int, subscription: str = "mine") -> SinkRecord:
    return SinkRecord(subscription, EPOCH, _set(1, end), number, f"t{number}")


def _commit(version: int, record: SinkRecord | None = None, /, **restored: str) -> Commit:
    operation = "RESTORE" if restored else "WRITE"
    metadata = None if record is None else record.encode()
    return Commit(version, str(version), operation, {"mode": "Append", **restored}, {}, metadata, 0, None)


def test_a_record_is_read_as_it_was_written() -> None:
    assert SinkRecord.decode(_record(7, 99).encode()) == _record(7, 99)
    assert SinkRecord.decode('{"other":1}') is SinkRecord.decode(None) is None


def test_the_newest_record_of_a_subscription_counts_and_not_that_of_another() -> None:
    commits = [_commit(4), _commit(3, _record(9, 9, "other")), _commit(2, _record(6, 60)), _commit(1, _record(5, 50))]
    assert newest_of(commits, "mine") == _record(6, 60)
    assert newest_of(commits, "nobody") is None


def test_after_a_restore_the_messages_are_those_of_its_version_and_no_number_is_used_again() -> None:
    commits = [_commit(4, version="1"), _commit(3, _record(7, 70)), _commit(2, _record(6, 60)), _commit(1, _record(5, 50))]
    found = newest_of(commits, "mine")
    assert found is not None
    assert (found.messages, found.number) == (_set(1, 50), 7)
    again = [_commit(6, version="4"), _commit(5, _record(8, 80)), *commits]
    found = newest_of(again, "mine")
    assert found is not None
    assert (found.messages, found.number) == (_set(1, 50), 8)


def test_a_restore_to_before_all_of_them_leaves_none_and_one_to_a_time_is_refused() -> None:
    commits = [_commit(2, version="0"), _commit(1, _record(5, 50)), _commit(0)]
    found = newest_of(commits, "mine")
    assert found is not None
    assert (found.messages, found.number) == (MessageSet(), 5)
    with pytest.raises(UnsafeError, match="version 2 of the sink is a RESTORE"):
        newest_of([_commit(2, timestamp="2026-01-01"), *commits[1:]], "mine")


def test_the_next_record_has_all_before_it_of_the_same_epoch() -> None:
    after = _record(5, 50).after(EPOCH, _set(2, 9), MessageSet(), "t")
    assert (after.messages, after.number, after.token) == (_set(1, 50) | _set(2, 9), 6, "t")
    assert _record(5, 50).after(Epoch(3, "eu"), _set(2, 9), MessageSet(), "t").messages == _set(2, 9)


def test_of_two_epochs_of_one_counter_the_later_is_that_of_the_higher_cluster() -> None:
    assert not _record(5, 50).is_later_than(EPOCH)
    assert _record(5, 50).is_later_than(Epoch(1, "us"))
    assert _record(5, 50).is_later_than(Epoch(2, "de"))
    assert not _record(5, 50).is_later_than(Epoch(2, "us"))


def test_a_record_that_would_be_too_large_leaves_out_the_oldest_ledgers_that_are_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink_record, "MOST_BYTES", 60)
    before = SinkRecord("mine", EPOCH, MessageSet.union(_set(ledger, 5) for ledger in range(1, 12)), 5, "t")
    acked = MessageSet.union(_set(ledger, 5) for ledger in range(1, 12) if ledger != 2)
    kept = before.after(EPOCH, _set(20, 5), acked, "t").messages
    assert not kept & _set(1, 5)
    assert not _set(2, 5) - kept, "one that is not acknowledged stays"
    assert not _set(20, 5) - kept
    assert len(kept.ledgers) < 12


def test_a_record_that_would_be_too_large_leaves_out_ledgers_that_were_forgotten_before_younger_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What has expired is in nobody's state any more, so nothing says that it is acknowledged."""
    monkeypatch.setattr(sink_record, "MOST_BYTES", 100)
    now = 1_800_000_000
    forgotten = [_set(ledger_id(now - sink_record.FORGOTTEN_S - 1 - number, 0), 5) for number in range(8)]
    young = [_set(ledger_id(now - sink_record.FORGOTTEN_S + 1, 0), 5), _set(ledger_id(now - 1, 0), 5)]
    fresh, old = _set(ledger_id(now, 0), 5), _set(ledger_id(1, 0), 5)
    before = SinkRecord("mine", EPOCH, MessageSet.union([*forgotten, *young]), 5, "t")
    kept = before.after(EPOCH, fresh | old, young[1], "t").messages
    assert not (fresh | old) - kept, "what this commit brings"
    assert not MessageSet.union(young) - kept, "its acknowledgement may be lost with its process"
    assert not forgotten[-1] & kept
    assert len(kept.ledgers) < 12


def test_a_ledger_that_the_log_holds_stays_however_old_it_is_and_whatever_is_known_to_be_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failover to a region that lacks the acknowledgements: a producer that has run for a month goes on in one ledger."""
    monkeypatch.setattr(sink_record, "MOST_BYTES", 30)
    now = 1_800_000_000
    old, gone, fresh = (_set(ledger_id(now - age, 0), 5) for age in (30 * 86_400, 29 * 86_400, 0))
    before = SinkRecord("mine", EPOCH, old | gone, 5, "t")
    assert before.after(EPOCH, fresh, MessageSet(), "t", set(old.ledgers)).messages == old | fresh
    assert before.after(EPOCH, fresh, MessageSet(), "t", {*old.ledgers, *gone.ledgers}).messages == old | gone | fresh
