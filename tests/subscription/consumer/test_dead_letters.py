"""Whether a dead letter topic can have the columns of its topic's messages. No Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from geo.delta.definition import columns_of
from geo.names import Topic
from geo.schemas import TOPIC_LOG
from geo.subscription.consumer.dead_letters import why_no_letters
from geo.subscription.consumer.settings import dead_letter_topic

TOPIC = Topic.parse("persistent://shop/web/orders")


def _column(name: str, kind: DataType) -> StructField:
    return StructField(name, kind)


_N, _WIDE, _TEXT = (_column("n", kind) for kind in (IntegerType(), LongType(), StringType()))


@pytest.mark.parametrize(
    ("there", "own", "told"),
    [
        ([_N], [_WIDE, _column("more", StringType())], None),
        ([_WIDE], [_N], None),
        ([], [], None),
        ([_N], [], None),
        ([_N], [_TEXT], "column 'n' is string in orders and int in it"),
        ([_N], [_column("N", IntegerType())], "the columns 'N' in orders and 'n' in it differ in case only"),
        ([], [_N], "it is a bytes topic, and orders has the columns n"),
    ],
)
def test_columns_that_do_not_go_together_are_told_with_the_dead_letter_topic_and_what_to_do(
    there: list[StructField], own: list[StructField], told: str | None
) -> None:
    why = why_no_letters(TOPIC, dead_letter_topic(TOPIC, "mail"), own, StructType([*columns_of(TOPIC_LOG), *there]))
    assert (why is None) is (told is None)
    for part in filter(None, (told, "orders-mail-DLQ cannot take", "`geo topics delete`")):
        assert why is None or part in why
