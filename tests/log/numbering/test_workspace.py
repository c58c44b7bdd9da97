"""Where rows are held until they are written: for a version of the log that has its columns. Without Spark."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from geo.delta.ddl import add_columns, create_table, set_property
from geo.delta.definition import columns_of
from geo.delta.local_state import state_to_follow
from geo.log.numbering.held_rows import workspace_of
from geo.schemas import TOPIC_LOG
from geo.schemas.table import Column
from tests.delta.on_s3 import opened_on
from tests.object_store import ObjectStore as S3


def test_rows_are_held_for_a_version_that_has_the_columns_that_were_seen(s3: S3, tmp_path: Path) -> None:
    """What it did not have would go without a word: on a store a version that was known a moment ago is followed on."""
    log = opened_on(s3)
    create_table(log, TOPIC_LOG)
    assert log.log_folder is not None
    set_property(log, "geo.test", "this process knows the version that it committed")
    wider = replace(TOPIC_LOG, columns=(*TOPIC_LOG.columns, Column("amount", "BIGINT", "new", added=True)))
    add_columns(opened_on(s3, log.log_folder.parent), columns_of(wider))
    with ExitStack() as held:
        before = workspace_of(str(tmp_path / "before"), log, [one.name for one in TOPIC_LOG.columns], held)
        assert before is not None
        assert "amount" not in before.state.schema.names, "nobody looked since"
        space = workspace_of(str(tmp_path / "held"), log, [one.name for one in wider.columns], held)
        assert space is not None
        assert "amount" in space.state.schema.names
    set_property(opened_on(s3, log.log_folder.parent), "geo.test", "again another's")
    newest = log.latest_version()
    following = state_to_follow(log)
    assert following is not None
    assert following.version == newest, "nothing older than what was seen is followed on"
