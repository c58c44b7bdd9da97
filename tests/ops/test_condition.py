"""A condition that is typed, judged before Spark reads it. Pure."""

from __future__ import annotations

import pytest

from geo.errors import UsageError
from geo.names import Topic
from geo.ops.condition import refuse_unknown_names

ORDERS = Topic.parse("persistent://shop/web/orders")
COLUMNS = ["key", "payload", "customer number"]


@pytest.mark.parametrize(
    "where",
    [
        "key = 'customer 7'",
        "KEY='it''s' AND not (payload is null)",
        "key in ('a', 'b') or key like 'x%' escape '!'",
        "key between 1 and 2.5",
        "`customer number` <=> 7",
        "`Key` <> 'a' and true",
        "upper(nothing) = 'A'",
        "date '2026-01-01' < nothing",
        "nothing[0] = 1",
        "key = 'no end",
        "-1 < nothing",
    ],
)
def test_a_condition_that_is_right_or_of_another_kind_is_left_to_spark(where: str) -> None:
    refuse_unknown_names(where, COLUMNS, ORDERS)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "--where is empty. Which messages are meant, such as \"key = 'customer 7'\"?"),
        ("  ", "--where is empty. Which messages are meant, such as \"key = 'customer 7'\"?"),
        ("kye = 1", f"--where 'kye = 1': {ORDERS} has no column 'kye'; did you mean 'key'?"),
        (
            "key = 1 AND zzz is null",
            f"--where 'key = 1 AND zzz is null': {ORDERS} has no column 'zzz'; there are: customer number, key, payload",
        ),
        ("`and` = 1", f"--where '`and` = 1': {ORDERS} has no column 'and'; there are: customer number, key, payload"),
        ("key =", "--where 'key =' has no end: something is missing behind '='"),
        ("key <=", "--where 'key <=' has no end: something is missing behind '<='"),
        ("key is null AND", "--where 'key is null AND' has no end: something is missing behind 'AND'"),
        ("key in", "--where 'key in' has no end: something is missing behind 'in'"),
        ("key in (1,", "--where 'key in (1,' has no end: something is missing behind ','"),
        ("(key = 1", "--where '(key = 1' has no end: something is missing behind '1'"),
        ("key = 1)", "--where 'key = 1)' has no end: something is missing behind ')'"),
    ],
)
def test_a_condition_that_cannot_be_is_refused_by_the_name_of_what_is_wrong(where: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        refuse_unknown_names(where, COLUMNS, ORDERS)
    assert str(refused.value) == message
