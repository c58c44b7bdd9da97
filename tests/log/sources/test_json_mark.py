"""Which places in JSON lines files a program of before reads."""

from __future__ import annotations

import re

import pytest

from geo.log.sources.json_mark import IS_MARKED, MARK, STAMP, is_newer


@pytest.mark.parametrize(
    ("end", "newer"),
    [
        (None, False),
        ('["12"]', False),
        ('["3","100:3:ab12"]', False),
        ('["3","100:3:"]', False),
        ('["3","100:3:ab12:00ff:100-1790000000-77"]', True),
        ('["3","0:0::00ff:0-1790000000-0"]', True),
        ('["3","uuid-of-a-topic"]', False),
        ('["a:1:2:3:4"]', False),
    ],
)
def test_a_place_with_hash_and_stamp_is_newer_than_one_without(end: str | None, *, newer: bool) -> None:
    assert is_newer(end) is newer


def test_the_patterns_for_sql_agree_with_that_for_marks() -> None:
    mark = "100:3:ab12:00ff:100-1790000000-77"
    end = f'["3","{mark}"]'
    assert MARK.fullmatch(mark)
    assert re.search(IS_MARKED, end)
    stamp = re.search(STAMP, end)
    assert stamp is not None
    assert (stamp[1], re.search(STAMP, '["3","100:3:ab12:00ff:100-1790000000-0"]')) == ("100-1790000000-77", None)
