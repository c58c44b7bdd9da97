"""How far a batch has come in a Delta table, by the text that Spark writes of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geo.errors import UsageError
from geo.subscription.versions.source_offsets import DeltaEnd, Ends, goes_on, read_ends, read_query_id
from tests.subscription.streams_of_others import OTHER, TABLE, delta, offsets


@pytest.mark.parametrize(
    ("end", "finished"),
    [
        (delta(8), 7),
        (delta(8, -100, of=3), 7),
        (delta(1), 0),
        (delta(0), None),  # nothing is before the first version
        (delta(8, 0), 7),  # one file of version 8, of several
        (delta(8, 41), 7),
        (delta(8, -20, of=3), 7),  # before a change of columns, and after it
        (delta(8, -19, of=3), 7),
        (delta(8, 2**63 - 101), 7),
        (delta(8, 3, first=True), None),  # a part of what was there when the query began
        (delta(8, -1, first=True), None),
    ],
)
def test_a_version_counts_once_the_query_is_beyond_it(end: str, finished: int | None) -> None:
    assert read_ends(offsets(end)).finished(TABLE) == finished


def test_of_several_sources_the_one_of_the_table_counts_and_of_two_of_it_the_one_behind() -> None:
    text = offsets(delta(90, table=OTHER), '{"clicks":{"0":17}}', "5", delta(8))
    assert read_ends(text).finished(TABLE) == 7
    assert read_ends(offsets(delta(12), delta(8))).finished(TABLE) == 7
    assert read_ends(offsets(delta(12), delta(8, 1, first=True))).finished(TABLE) is None


def test_sources_with_names_are_read_too() -> None:
    assert read_ends(offsets(f"clicks:{delta(8)}", "others:-", version="v2")).finished(TABLE) == 7


def test_what_has_not_begun_has_finished_nothing() -> None:
    assert read_ends(offsets("-")).finished(TABLE) is None
    assert read_ends(offsets("-", delta(4, table=OTHER))).finished(TABLE) is None
    assert read_ends(offsets()).finished(TABLE) is None


def test_another_table_is_refused_by_both_ids_and_a_query_without_any_too() -> None:
    with pytest.raises(UsageError, match=f"{TABLE}: it reads the Delta tables with the ids {OTHER}"):
        read_ends(offsets(delta(4, table=OTHER))).finished(TABLE)
    with pytest.raises(UsageError, match="it reads no Delta table"):
        read_ends(offsets('{"clicks":{"0":17}}')).finished(TABLE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1",
        "v3\n{}\n-",
        "v9999999999\n{}\n-",
        "PAR1\x00\n\n",
        offsets(delta(-1)),
        offsets(delta(2**63)),
        offsets(delta("8")),
        offsets(delta(8.0)),
        offsets(delta(True)),
        offsets(delta(None)),
        offsets(delta(8, first="false")),
        offsets(delta(8, first=None)),
        offsets(delta(8, table=7)),
        offsets(delta(8, of=2)),
        offsets(delta(8, of=4)),
        offsets(delta(8, of=None)),
        offsets('{"reservoirId":"x"}'),
        "v1\n" + "x" * 2_000_000,
    ],
)
def test_what_spark_and_delta_cannot_have_written_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_ends(text)


@pytest.mark.parametrize("text", ["", "v1", "[]", '"id"', "{}", '{"id":null}', '{"id":7}', '{"id":""}'])
def test_a_query_has_an_id(text: str) -> None:
    assert read_query_id('{"id":"5bcf1a8e"}') == "5bcf1a8e"
    with pytest.raises(UsageError, match="has no id of a streaming query"):
        read_query_id(text)


def at(version: int, *, first: bool = False) -> DeltaEnd:
    return DeltaEnd(TABLE, version, first)


@pytest.mark.parametrize(
    ("planned", "newest", "commits", "does"),
    [
        ([], 5, range(6), False),  # what cannot be read
        ([at(6)], 5, range(6), True),  # the first batch has all there is
        ([at(3)], 5, range(6), True),
        ([at(3)], 5, range(2, 6), True),
        ([at(3)], 5, range(3, 6), False),  # it may have to read again what was there at version 2
        ([at(6)], 4, range(5), False),  # the table was put back to before it
        ([at(5, first=True)], 5, range(6), True),  # the first batch has a part of what was there
        ([at(5, first=True)], 4, range(5), False),
        ([at(5, first=True)], 8, range(6, 9), False),
        ([at(4), at(6)], 5, range(4, 6), True),
        ([at(4), at(6)], 5, range(5, 6), False),  # the last batch, of versions 4 and 5, may not be done
        ([at(4), at(6)], 9, range(4, 10), True),
        ([at(4), at(6)], 4, range(5), False),  # put back into the middle of the last batch
        ([at(4), at(6)], 3, range(4), False),
        ([at(6), at(6)], 5, range(6), True),
        ([at(6), at(6)], 5, [], True),  # there is nothing more to read, and nothing that is needed again
        ([at(5, first=True), at(6)], 9, range(5, 10), True),
        ([at(5, first=True), at(6)], 9, range(6, 10), False),  # the rest of what was there
    ],
)
def test_a_checkpoint_is_of_use_unless_its_table_is_behind_it_or_has_let_go_of_what_it_needs(
    planned: list[DeltaEnd], newest: int, commits: Sequence[int], does: bool
) -> None:
    assert goes_on(planned, newest, lambda version: version in commits) is does


@given(st.text() | st.lists(st.text() | st.sampled_from(["v1", "v2", "-", delta(8)])).map("\n".join))
@example("v1\n\n" + "[" * 100_000)
@example("v1\n\n" + "9" * 5_000)
@example("v2\n\n:")
def test_no_text_ends_the_reader_otherwise(text: str) -> None:
    with suppress(UsageError):
        assert isinstance(read_ends(text), Ends)


@given(st.lists(st.builds(DeltaEnd, st.sampled_from([TABLE, OTHER]), st.integers(0, 9), st.booleans()), min_size=1))
def test_nothing_is_finished_that_a_source_of_the_table_has_not(ends: list[DeltaEnd]) -> None:
    finished = Ends(tuple(ends), void=True).finished(TABLE)
    mine = [one for one in ends if one.table_id == TABLE]
    if finished is not None:
        assert mine
        assert all(not one.in_first_content and one.version > finished for one in mine)
