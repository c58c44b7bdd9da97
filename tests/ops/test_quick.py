"""What the ends and counts of two logs say of a link, decided without any log."""

from __future__ import annotations

from geo.config.model import Link
from geo.ids import LedgerId
from geo.log.topic_log import Held
from geo.ops.verify.quick import QuickLink, QuickReport, of_link, of_log

LINK = Link("us", "eu")
LEDGER = LedgerId("us", 7)


def of(source: Held, early: Held | None, late: Held | None = None, floor: int = 0, *, expires: bool = False) -> QuickLink:
    before, after = ({} if span is None else {LEDGER: span} for span in (early, late or early))
    return of_link("t", LINK, {LEDGER: source}, before, after, {str(LEDGER): floor}, expires=expires)


def counts(found: QuickLink) -> tuple[int, int, int]:
    return found.behind, found.lacking, found.beyond


def test_a_log_with_all_entries_once_has_no_fault() -> None:
    log = of_log("t", "us", 3, {LEDGER: Held(0, 9, 10), LedgerId("eu", 1): Held(5, 5, 1)})
    assert (log.ledgers, log.messages, log.holes, log.repeats, log.examples) == (2, 11, 0, 0, ())
    assert QuickReport((log,), ()).clean


def test_an_entry_that_lacks_and_one_that_is_there_twice_are_told_with_their_ledger() -> None:
    log = of_log("t", "us", 3, {LEDGER: Held(0, 9, 9), LedgerId("eu", 1): Held(5, 6, 3)})
    assert (log.holes, log.repeats, log.examples) == (1, 1, ("eu:1", "us:7"))
    assert not QuickReport((log,), ()).clean
    assert "1 holes, 1 repeats, such as eu:1, us:7" in "\n".join(QuickReport((log,), ()).lines())


def test_what_the_target_has_not_yet_is_behind_and_no_fault() -> None:
    assert counts(of(Held(0, 9, 10), Held(0, 6, 7))) == (3, 0, 0)
    assert counts(of(Held(0, 9, 10), None)) == (10, 0, 0)
    assert QuickReport((), (of(Held(0, 9, 10), None),)).clean


def test_a_target_whose_beginning_lacks_is_a_fault() -> None:
    assert counts(of(Held(0, 9, 10), Held(4, 9, 6))) == (0, 4, 0)
    assert not QuickReport((), (of(Held(0, 9, 10), Held(4, 9, 6)),)).clean


def test_a_target_beyond_its_source_is_a_fault_if_it_was_so_before_the_source_was_read() -> None:
    assert counts(of(Held(0, 9, 10), Held(0, 11, 12))) == (0, 0, 2)
    assert counts(of(Held(0, 9, 10), Held(0, 9, 10), Held(0, 11, 12))) == (0, 0, 0), "it came meanwhile"


def test_what_is_below_a_floor_is_not_wanted() -> None:
    assert counts(of(Held(0, 9, 10), Held(6, 9, 4), floor=6)) == (0, 0, 0)
    assert counts(of(Held(0, 9, 10), None, floor=6)) == (4, 0, 0)
    assert counts(of(Held(0, 9, 10), None, floor=10)) == (0, 0, 0)


def test_what_is_older_than_its_time_to_live_may_lack() -> None:
    assert counts(of(Held(0, 9, 10, since=5), Held(5, 9, 5), expires=True)) == (0, 0, 0)
    assert counts(of(Held(0, 9, 10, since=5), None, expires=True)) == (5, 0, 0)
    assert counts(of(Held(0, 9, 10), None, expires=True)) == (0, 0, 0), "all of it is too old"


def test_ledgers_of_other_origins_and_for_others_do_not_count() -> None:
    addressed = Held(0, 9, 10, replicate_to=("ap",))
    found = of_link("t", LINK, {LEDGER: addressed, LedgerId("eu", 1): Held(0, 9, 10)}, {}, {}, {}, expires=False)
    assert (found.ledgers, counts(found)) == (0, (0, 0, 0))
