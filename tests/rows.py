"""Rows of system tables as tests write them: what a test does not say is as usual."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from geo.coordination.claims import OWNED, Owner
from geo.delta.process import Process
from geo.names import Topic
from geo.schemas import LEDGERS


def owner(
    runner: str = "r", generation: int = 1, sequence: int = 0, *, holder: Process | None = None, age: timedelta = timedelta(0)
) -> Owner:
    """Somebody who owns a runner since `age`, with the token GENERATION-SEQUENCE; without a `holder` no process of ours."""
    process = "{}" if holder is None else holder.encode()
    since = datetime.now(timezone.utc) - age
    return Owner(runner, generation, f"{generation}-{sequence}", process, OWNED, in_flight=False, since=since, sequence=sequence)


def ledger_row(topic: Topic, **given: Any) -> dict[str, Any]:
    """A ledger of producer `p` that ends with entry 1."""
    now = datetime.now(timezone.utc)
    return {
        **{column.name: None for column in LEDGERS.columns},
        "topic": str(topic), "producer": "p", "ledger_id": 1, "source": "", "uncompared": [], "end": 1, "source_count": 1,
        "source_hash": 0, "publish_time": now, "table_id": "t", "table_version": 1, "complete": False, "generation": 1,
        "sequence": 1, "recorded_at": now, **given,
    }  # fmt: skip
