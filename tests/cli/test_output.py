"""JSON as any parser takes it."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from geo.cli.output import Output, to_json


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (1.5, 1.5),
        (datetime(1, 1, 1, tzinfo=timezone.utc), "0001-01-01T00:00:00Z"),
        (datetime.min, "0001-01-01T00:00:00Z"),
    ],
)
def test_numbers_that_json_has_not_and_the_first_times_are_shown(
    value: object, shown: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert to_json({"nested": [value]}) == {"nested": [shown]}
    Output(as_json=True).line({"value": value})
    printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert printed == {"value": shown}
