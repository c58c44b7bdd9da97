"""What the ends and counts of ledgers say of a log and of a link, decided without any log."""

from __future__ import annotations

from geo.config.model import Link
from geo.ids import LedgerId
from geo.log.ledgers import LedgerPart
from geo.ops.verify.ends import check_link, check_log
from geo.ops.verify.report import Category, Difference

LINK = Link("us", "eu")
LEDGER = LedgerId("us", 7)
SOURCE = LedgerPart(0, 9, 10)


def _log(part: LedgerPart, floor: int = 0, *, expires: bool = False) -> tuple[Difference, ...]:
    return check_log("eu", {LEDGER: part}, {"us"}, {str(LEDGER): floor}, expires=expires)


def _link(
    source: LedgerPart | None, early: LedgerPart | None, late: LedgerPart | None = None, floor: int = 0, *, vouched: bool = False
) -> dict[str, int]:
    logs = [{} if part is None else {LEDGER: part} for part in (source, early, late or early)]
    both, findings = check_link(LINK, logs[0], [], logs[1], logs[2], {str(LEDGER): floor}, vouched=vouched)
    return {"both": both, **{finding.category.value: finding.count for finding in findings}}


def test_a_log_that_has_every_entry_once_has_no_fault() -> None:
    assert _log(SOURCE) == ()


def test_entries_that_lack_and_entries_that_are_there_too_often_are_found_with_their_ledger() -> None:
    assert _log(LedgerPart(0, 9, 8)) == (Difference(Category.HOLES, 2, ("us:7",)),)
    assert _log(LedgerPart(0, 9, 11)) == (Difference(Category.DUPLICATES, 1, ("us:7",)),)


def test_a_beginning_that_lacks_is_a_hole_unless_it_may_have_expired_or_was_not_wanted() -> None:
    assert _log(LedgerPart(4, 9, 6)) == (Difference(Category.HOLES, 4, ("us:7",)),)
    assert _log(LedgerPart(4, 9, 6), floor=4) == ()
    assert _log(LedgerPart(4, 9, 6), expires=True) == ()


def test_only_what_should_be_in_a_log_is_judged() -> None:
    broken = LedgerPart(0, 9, 8)
    assert check_log("eu", {LEDGER: broken}, set(), {}, expires=False) == ()
    for_others = LedgerPart(0, 9, 8, replicate_to=("ap",))
    assert check_log("eu", {LEDGER: for_others}, {"us"}, {}, expires=False) == ()


def test_what_the_target_has_not_got_yet_is_in_flight() -> None:
    assert _link(SOURCE, LedgerPart(0, 6, 7)) == {"both": 7, "in_flight": 3}
    assert _link(SOURCE, None) == {"both": 0, "in_flight": 10}
    assert _link(SOURCE, SOURCE) == {"both": 10}


def test_what_a_link_vouched_for_is_missing_and_not_in_flight() -> None:
    assert _link(SOURCE, LedgerPart(0, 6, 7), vouched=True) == {"both": 7, "missing": 3}
    assert _link(SOURCE, None, vouched=True) == {"both": 0, "missing": 10}
    assert _link(SOURCE, LedgerPart(4, 6, 3), vouched=True) == {"both": 3, "missing": 7}


def test_of_a_ledger_that_began_twice_nothing_is_said() -> None:
    assert _log(LedgerPart(0, 30, 20), floor=15) == ()


def test_a_beginning_that_the_source_has_and_the_target_lacks_is_missing() -> None:
    assert _link(SOURCE, LedgerPart(4, 9, 6)) == {"both": 6, "missing": 4}
    assert _link(SOURCE, LedgerPart(4, 9, 6), floor=4) == {"both": 6}


def test_what_is_beyond_the_source_is_unexpected_if_it_was_there_before_the_source_was_looked_at() -> None:
    ahead = LedgerPart(0, 11, 12)
    assert _link(SOURCE, ahead) == {"both": 10, "unexpected": 2}
    assert _link(SOURCE, SOURCE, ahead) == {"both": 10}
    assert _link(None, SOURCE) == {"both": 0, "unexpected": 10}


def test_what_an_origin_has_and_the_hub_has_no_more_is_not_unexpected() -> None:
    by_hub, there = Link("hub", "eu", origins=("us",)), {LEDGER: SOURCE}
    assert check_link(by_hub, {}, [there], there, there, {}, vouched=False) == (0, ())


def test_below_a_floor_nothing_is_in_flight() -> None:
    assert _link(SOURCE, None, floor=6) == {"both": 0, "in_flight": 4}
    assert _link(SOURCE, None, floor=10) == {"both": 0}


def test_other_origins_and_what_is_for_others_do_not_cross() -> None:
    source = {LedgerId("us", 8): LedgerPart(0, 9, 10, replicate_to=("ap",)), LedgerId("ap", 1): SOURCE}
    assert check_link(LINK, source, [], {}, {}, {}, vouched=False) == (0, ())
