"""Text of users in SQL. Property tests; those without Spark read the quoting back as Spark's lexer does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from geo.sql_text import identifier, literal, type_of
from tests.examples import examples

_TEXTS = st.text(max_size=20) | st.text("'\\`\"\n%_u0041 ", max_size=12)


@given(_TEXTS)
def test_an_identifier_ends_where_it_should(text: str) -> None:
    quoted = identifier(text)
    assert re.fullmatch(r"`(?:[^`]|``)*`", quoted, re.DOTALL)
    assert quoted[1:-1].replace("``", "`") == text


@pytest.mark.spark
@settings(max_examples=examples(0.3))
@given(st.lists(_TEXTS.filter(lambda text: "\x00" not in text), min_size=20, max_size=20))
def test_a_literal_is_the_text_again(spark: SparkSession, texts: list[str]) -> None:
    found = spark.sql(f"SELECT array({', '.join(map(literal, texts))}) AS texts").collect()[0]["texts"]
    assert found == texts


def test_types_are_named_as_in_sql() -> None:
    column = {"name": "a b", "type": "integer", "nullable": True, "metadata": {}}
    struct = {"type": "struct", "fields": [column, {**column, "name": "c", "type": {"type": "array", "elementType": "long"}}]}
    assert (
        type_of({"type": "map", "keyType": "string", "valueType": struct}) == "MAP<STRING, STRUCT<`a b`: INT, c: ARRAY<BIGINT>>>"
    )
    assert [*map(type_of, ("decimal(10,2)", "timestamp_ntz", "short"))] == ["DECIMAL(10,2)", "TIMESTAMP_NTZ", "SMALLINT"]
