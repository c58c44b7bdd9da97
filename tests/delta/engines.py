"""An engine that answers nothing, so that Spark is asked."""

from __future__ import annotations

from typing import NoReturn

from geo.delta.engine import UnsupportedError


def refuses(*_: object) -> NoReturn:
    raise UnsupportedError("a test wants Spark")
