"""`system/links` of a program before: read as unknown, widened by who writes the next row, and written by that program still. No Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geo.config.cluster import Cluster
from geo.journal.cluster import ClusterTables, without_spark
from geo.journal.journal import Journal
from geo.journal.rows import as_row
from geo.now import utc_now
from geo.reasons import Reason
from geo.replication.link_state import LinkState
from geo.replication.link_table import append_links, read_links
from geo.schemas import LINKS
from geo.streams.life import State
from geo.times import EPOCH
from tests.delta.on_s3 import cluster_on
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3

pytestmark = pytest.mark.slow

BEFORE = replace(LINKS, columns=tuple(one for one in LINKS.columns if one.name not in ("state_since", "reason_code")))
ROW = LinkState("us", "persistent://shop/web/clicks", State.FAILED, "why", 3, ("us",), None, None, None, 0, 1)


def _append_as_before(tables: ClusterTables, state: LinkState) -> None:
    row = {name: value for name, value in as_row(state).items() if name in BEFORE.names}
    Journal(tables.journal(LINKS).table, BEFORE).append([{**row, "updated_at": utc_now()}])


@pytest.fixture
def eu(s3: S3, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("GEO_TEST_KEY", KEY)
    monkeypatch.setenv("GEO_TEST_SECRET", SECRET)
    return cluster_on(s3, bucket)


def test_rows_of_a_program_before_are_unknown_and_both_programs_write_the_table(eu: Cluster) -> None:
    def newest() -> LinkState:
        (state,) = read_links(without_spark(eu)).values()
        return state

    _append_as_before(without_spark(eu), ROW)
    assert (newest().state_since, newest().reason_code) == (None, None)
    told = replace(ROW, sequence=2, state_since=EPOCH, reason_code=Reason.SOURCE_GONE)
    append_links(without_spark(eu), [told])
    assert newest() == told
    _append_as_before(without_spark(eu), replace(ROW, sequence=3))
    assert (newest().sequence, newest().state_since, newest().reason_code) == (3, None, None)
