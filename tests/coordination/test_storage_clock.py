"""The clock of an object store, as a process on another host tells it. Spark is never started."""

from __future__ import annotations

from pathlib import Path

import pytest

from geo.coordination import storage_clock
from geo.coordination.signs import came_us
from geo.coordination.storage_clock import storage_now_us
from geo.journal.cluster import ClusterTables
from geo.now import now_us
from tests.clock_off import clock_off, set_clock_off
from tests.far import Far
from tests.object_store import ObjectStore as S3

HALTED_S = 30 * 3600


def test_a_process_that_was_halted_while_it_held_its_clock_against_the_store_s_asks_again(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, halts = Far.made(s3, tmp_path).tables("us"), [HALTED_S]

    def halted(tables: ClusterTables) -> int | None:
        while halts:
            s3.go_on(halts[0])
            set_clock_off(halts.pop())
        return came_us(tables)

    monkeypatch.setattr(storage_clock, "came_us", halted)
    try:
        with clock_off(0):
            assert abs(storage_now_us(tables) - now_us()) < 5_000_000
    finally:
        s3.go_on(0)
