"""What clusters hold of a topic, asked while one removal goes on."""

from __future__ import annotations

import time

import pytest

from geo.ops.holdings import Holdings
from geo.ops.removal import OnlyThere
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark


def test_no_limit_cuts_off_who_reads_a_log_and_it_is_read_once_a_version(linked: World) -> None:
    found = Holdings({"us": linked.tables("us")})
    context, told = linked.spark.sparkContext, linked.spark.sparkContext.statusTracker()

    def jobs(asked: str, messages: int) -> int:
        """How many jobs this thread runs when it asks. What is limited in time is asked in threads of its own."""
        context.setJobGroup(asked, "what only eu has")
        assert found.only_in(linked.tables("eu"), linked.config, TOPIC).messages == messages
        context.setJobGroup(f"after {asked}", "told in order, later than it happens")
        linked.spark.range(1).count()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        deadline = time.monotonic() + 60
        while not told.getJobIdsForGroup(f"after {asked}"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return len(told.getJobIdsForGroup(asked))

    both, none = jobs("both are read", 0), jobs("none is read", 0)
    assert both > none == jobs("none is read again", 0)
    linked.write("eu", 20, 25)
    one = jobs("one is read", 5)
    assert both > one > none


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
