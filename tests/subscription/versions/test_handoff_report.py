"""What comes again and what is not seen, of a consumer that goes on in another cluster's log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.ids import LedgerId, MessageId
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.versions.handoff_report import HandoffReport, LogAt, WhyUnfinished, handoff_report

parse = MessageSet.parse


def at(messages: str, **aims: tuple[str, ...]) -> LogAt:
    """A log's messages; the `replicate_to` of ledgers as `us_2=("ap",)`."""
    named = {LedgerId(name.split("_")[0], int(name.split("_")[1])): to for name, to in aims.items()}
    return LogAt(parse(messages), named)


def from_eu(finished: str | None, before: LogAt, after: str = "", held: str = "", reached_by: str = "eu us") -> HandoffReport:
    """The consumer is in eu."""
    done = None if finished is None else parse(finished)
    return handoff_report("eu", reached_by.split(), done, parse(held or finished or ""), before, parse(after))


def test_what_was_finished_and_is_at_or_after_the_start_comes_again() -> None:
    found = from_eu("eu:1:0-9 us:1:0-4", at("eu:1:0-6 us:1:0-4"), after="eu:1:7-20")
    assert found == HandoffReport(parse("eu:1:7-9"), {})


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (at("us:2:0-3", us_2=("ap",)), WhyUnfinished.NOT_ADDRESSED),
        (at("us:2:0-3", us_2=()), WhyUnfinished.NOT_ADDRESSED),
        (at("ap:2:0-3"), WhyUnfinished.NO_WAY),
        (at("ap:2:0-3", ap_2=("eu",)), WhyUnfinished.NO_WAY),
        (at("us:2:0-3"), WhyUnfinished.ABSENT),
        (at("us:2:0-3", us_2=("eu",)), WhyUnfinished.ABSENT),
    ],
)
def test_what_is_before_the_start_and_was_not_finished_is_counted_by_why(before: LogAt, why: WhyUnfinished) -> None:
    assert from_eu("eu:1:0-9", before).unseen == {why: before.messages}


def test_what_came_later_than_what_was_finished_is_named_as_that() -> None:
    found = from_eu("us:1:0-4", at("us:1:0-9"), held="us:1:0-7")
    assert found.unseen == {WhyUnfinished.LATER: parse("us:1:5-7"), WhyUnfinished.ABSENT: parse("us:1:8-9")}


def test_what_the_source_wrote_and_no_longer_has_it_had() -> None:
    assert from_eu("eu:1:100-120", at("eu:1:50-110"), held="eu:1:100-130").unseen == {}


def test_of_a_source_that_is_gone_only_the_rule_tells_and_all_that_follows_may_come_again() -> None:
    found = from_eu(None, at("eu:1:0-6 us:1:0-4 us:2:0 ap:1:0", us_2=("ap",)), after="eu:1:7-20 us:3:0")
    assert found == HandoffReport(
        parse("eu:1:7-20 us:3:0"), {WhyUnfinished.NOT_ADDRESSED: parse("us:2:0"), WhyUnfinished.NO_WAY: parse("ap:1:0")}
    )


_IDS = st.sets(st.builds(MessageId, st.sampled_from(["eu", "us", "ap"]), st.integers(1, 2), st.integers(0, 3)))
_AIMS = st.dictionaries(
    st.builds(LedgerId, st.sampled_from(["eu", "us", "ap"]), st.integers(1, 2)),
    st.sampled_from([("eu",), ("us",), ()]),
)


@given(_IDS, _IDS, _IDS, _IDS, _AIMS, st.sets(st.sampled_from(["us", "ap"])))
def test_each_message_before_the_start_was_finished_or_was_the_source_s_own_or_is_named_once(
    finished: set[MessageId],
    later: set[MessageId],
    before: set[MessageId],
    after: set[MessageId],
    aims: dict[LedgerId, tuple[str, ...]],
    reached_by: set[str],
) -> None:
    done = MessageSet.of(finished)
    log = LogAt(MessageSet.of(before), aims)
    found = handoff_report("eu", {"eu", *reached_by}, done, MessageSet.of(finished | later), log, MessageSet.of(after))
    assert set(found.repeated) == finished & after
    named = [one for messages in found.unseen.values() for one in messages]
    assert len(named) == len(set(named))
    assert set(named) == {one for one in before - finished if one.origin != "eu" or one in later}
