"""What clusters hold of a topic, asked while one removal goes on."""

from __future__ import annotations

import threading
from unittest import mock

import pytest
from pyspark.sql import DataFrame

from geo.ops import holdings
from geo.ops.holdings import Holdings
from geo.ops.removal import Extents, OnlyThere
from geo.replication.missing_rows import extents
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def test_no_limit_cuts_off_who_reads_a_log_and_it_is_read_once_a_version(linked: World) -> None:
    read_by = list[threading.Thread]()

    def read(rows: DataFrame) -> Extents:
        read_by.append(threading.current_thread())
        return extents(rows)

    found = Holdings({"us": linked.tables("us")})
    with mock.patch.object(holdings, "extents", read):
        for _ in range(3):
            assert found.only_in(linked.tables("eu"), linked.config, TOPIC) == OnlyThere()
        assert read_by == [threading.main_thread()] * 2, "what is limited in time is asked in threads of its own"
        linked.write("eu", 20, 25)
        assert found.only_in(linked.tables("eu"), linked.config, TOPIC).messages == 5
        assert len(read_by) == 3


def test_who_could_not_be_asked_once_is_not_waited_for_again(linked: World) -> None:
    us = linked.folder / "us"
    us.rename(linked.folder / "elsewhere")
    us.write_text("no folder")
    found = Holdings({"us": linked.tables("us")})
    first = found.only_in(linked.tables("eu"), linked.config, TOPIC)
    us.unlink()
    (linked.folder / "elsewhere").rename(us)
    again = found.only_in(linked.tables("eu"), linked.config, TOPIC)
    assert first == again
    assert (first.messages, list(first.away or {})) == (40, ["us"])
    assert Holdings({"us": linked.tables("us")}).only_in(linked.tables("eu"), linked.config, TOPIC) == OnlyThere()
