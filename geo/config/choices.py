"""Keys of which the value is one of a few words. Pure: no Spark, clock or I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

from geo.config.yaml_nodes import suggestion
from geo.errors import UsageError
from geo.text import show

Start = Literal["earliest", "latest"]

Carry = Literal["messages", "acks", "both"]
"""Content that crosses a link: messages of topics, acknowledgements of subscriptions, or both."""

SchemaChange = Literal["fixed", "grow"]
"""Treatment of other columns that are published into a typed topic: they are refused, or the topic gets them, and wider types."""

Updates = Literal["allow", "deny"]
"""Permission of a link to replicate new columns and wider types of its source's topics."""


def check_start(text: str) -> Start:
    return cast(Start, _one_of(get_args(Start), text, "start"))


def check_carry(text: str) -> Carry:
    return cast(Carry, _one_of(get_args(Carry), text, "carry"))


def check_schema_change(text: str) -> SchemaChange:
    return cast(SchemaChange, _one_of(get_args(SchemaChange), text, "schema"))


def check_updates(text: str) -> Updates:
    return cast(Updates, _one_of(get_args(Updates), text, "schema_updates"))


def _one_of(allowed: Sequence[str], text: str, what: str) -> str:
    if text not in allowed:
        raise UsageError(f"{what} cannot be {show(text)}; allowed: {', '.join(allowed)}{suggestion(text, allowed)}")
    return text
