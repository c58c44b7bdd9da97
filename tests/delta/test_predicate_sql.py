"""The SQL of each condition, and of its opposite, word for word. That it means the same as the other forms is held in `test_predicate.py`."""

from __future__ import annotations

import pytest

from geo.delta.predicate import (
    ANY_ROW,
    All,
    Among,
    AtLeast,
    Begins,
    Compare,
    Either,
    IsNull,
    Lists,
    Not,
    Predicate,
    TimeUs,
    to_sql,
)

LEAST = "CAST('-9223372036854775808' AS BIGINT)"
BOUNDED = (
    """`n` >= coalesce(from_json('{"eu:1": 7}', 'map<string, bigint>')"""
    f"[concat(CAST(`origin` AS STRING), ':', CAST(`ledger` AS STRING))], {LEAST})"
)


@pytest.mark.parametrize(
    ("predicate", "sql", "opposite"),
    [
        (ANY_ROW, "true", "false"),
        (IsNull("a`b"), "`a``b` IS NULL", "`a``b` IS NOT NULL"),
        (Among("n", frozenset([2, 1])), "`n` IN (1L, 2L)", "`n` IS NULL OR `n` NOT IN (1L, 2L)"),
        (Among("n", frozenset()), "false", "true"),
        (Among("b", frozenset([b"\x00\xff"])), "`b` IN (X'00ff')", "`b` IS NULL OR `b` NOT IN (X'00ff')"),
        (Begins("s", "eu"), "startswith(`s`, 'eu')", "`s` IS NULL OR NOT startswith(`s`, 'eu')"),
        (Lists("l", "eu"), "array_contains(`l`, 'eu')", "NOT coalesce(array_contains(`l`, 'eu'), false)"),
        (Compare("n", "<", 7), "`n` < 7L", "(`n` IS NULL) OR (`n` >= 7L)"),
        (Compare("n", ">=", 7), "`n` >= 7L", "(`n` IS NULL) OR (`n` < 7L)"),
        (Compare("s", "<=", "x"), "`s` <= 'x'", "(`s` IS NULL) OR (`s` > 'x')"),
        (
            Compare("t", ">", TimeUs(10**30)),
            "`t` > timestamp_micros(9223372036854775807L)",
            "(`t` IS NULL) OR (`t` <= timestamp_micros(9223372036854775807L))",
        ),
        (AtLeast("n", ("origin", "ledger"), {"eu:1": 7}), BOUNDED, f"NOT coalesce({BOUNDED}, false)"),
        (All((IsNull("a"), Not(IsNull("b")))), "(`a` IS NULL) AND (`b` IS NOT NULL)", "(`a` IS NOT NULL) OR (`b` IS NULL)"),
        (Either((IsNull("a"), IsNull("b"))), "(`a` IS NULL) OR (`b` IS NULL)", "(`a` IS NOT NULL) AND (`b` IS NOT NULL)"),
    ],
)
def test_each_condition_and_its_opposite_as_sql(predicate: Predicate, sql: str, opposite: str) -> None:
    assert to_sql(predicate) == sql
    assert to_sql(Not(predicate)) == opposite
    assert to_sql(Not(Not(predicate))) == sql
