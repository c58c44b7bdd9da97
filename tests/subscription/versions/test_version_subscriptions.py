"""Version subscriptions as people make them, say how far they are, and delete them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from geo.delta.ddl import remove_table
from geo.errors import SchemaError, UnsafeError, UsageError
from geo.names import Topic
from geo.schemas import VERSION_SUBSCRIPTIONS
from geo.subscription import changes
from geo.subscription.versions import version_subscriptions as module
from geo.subscription.versions.version_status import version_standings
from geo.subscription.versions.version_subscriptions import (
    VersionSubscription,
    create,
    delete,
    finish,
    progress,
    version_subscription,
    version_subscriptions,
)
from tests.subscription.streams_of_others import OTHER, DeltaStream, write_batch
from tests.world import TOPIC, World

pytestmark = pytest.mark.spark

NAME = "reports"


def test_one_is_made_finishes_versions_never_backward_and_is_deleted(world: World) -> None:
    eu = world.tables("eu")
    with pytest.raises(SchemaError, match="has no log in cluster eu"):
        create(eu, TOPIC, NAME)
    for first in range(3):
        world.write("eu", first, first + 1)  # the table is version 0
    with pytest.raises(UsageError, match=r"eu knows no version subscription reports of .*--mode version"):
        finish(eu, TOPIC, NAME, 1)
    made = create(eu, TOPIC, NAME)
    assert (
        made
        == create(eu, TOPIC, NAME)
        == VersionSubscription(TOPIC, NAME, world.log("eu").table_id(), None, None, None, made.created_at)
    )
    assert progress(eu, made) is None
    assert finish(eu, TOPIC, NAME, 1).finished == finish(eu, TOPIC, NAME, 1).finished == 1
    assert create(eu, TOPIC, NAME).finished == 1, "again it changes nothing"
    for version, error, why in ((0, UnsafeError, "never goes back to 0"), (4, UsageError, "ends at version 3")):
        with pytest.raises(error, match=why):
            finish(eu, TOPIC, NAME, version)
    finish(eu, TOPIC, NAME, 3)
    assert version_subscriptions(eu, "persistent://shop/*/*") == [version_subscription(eu, TOPIC, NAME)]
    assert version_subscriptions(eu, "persistent://other/*/*") == version_subscriptions(world.tables("us")) == []
    rows = eu.journal(VERSION_SUBSCRIPTIONS).rows()
    assert rows is not None
    assert sorted((row["sequence"], row["finished"]) for row in rows.collect()) == [(1, None), (2, 1), (3, 3)], (
        "what changes nothing is not recorded"
    )
    delete(eu, TOPIC, NAME)
    assert version_subscription(eu, TOPIC, NAME) is None
    with pytest.raises(UsageError, match="eu knows no version subscription"):
        delete(eu, TOPIC, NAME)
    again = create(eu, TOPIC, NAME)
    assert again.finished is None, "it begins anew"
    assert again.created_at > made.created_at


def test_a_version_whose_commit_is_gone_is_not_in_the_log(world: World) -> None:
    for first in range(4):
        world.write("eu", first, first + 1)
    create(world.tables("eu"), TOPIC, NAME)
    world.clean_up("eu")
    with pytest.raises(UsageError, match=r"version 2 is not in the log .* does not have its commit any more"):
        finish(world.tables("eu"), TOPIC, NAME, 2)


def test_versions_of_a_log_that_was_made_anew_mean_nothing(world: World) -> None:
    world.write("eu", 0, 1)
    eu = world.tables("eu")
    one = create(eu, TOPIC, NAME)
    remove_table(world.log("eu"))
    world.write("eu", 0, 1)
    fresh = world.tables("eu")
    changes_of_it: list[Callable[[], object]] = [
        lambda: finish(fresh, TOPIC, NAME, 1),
        lambda: create(fresh, TOPIC, NAME),
        lambda: progress(fresh, one),
    ]
    for change in changes_of_it:
        with pytest.raises(
            UnsafeError, match=f"id {one.table_id}, and the log there has the id .* made anew.*delete it and create it"
        ):
            change()
    delete(fresh, TOPIC, NAME)
    assert create(fresh, TOPIC, NAME).table_id != one.table_id


def test_a_name_is_of_one_kind(world: World) -> None:
    world.write("eu", 0, 1)
    eu = world.tables("eu")
    changes.create(world.spark, world.config, "eu", TOPIC, "billing", "earliest")
    with pytest.raises(UsageError, match=r"billing is a subscription of .* acknowledged one by one"):
        create(eu, TOPIC, "billing")
    create(eu, TOPIC, NAME)
    with pytest.raises(UsageError, match=r"version subscription reports of .* is there already"):
        changes.create(world.spark, world.config, "eu", TOPIC, NAME, "earliest")
    with pytest.raises(UsageError):
        create(eu, TOPIC, "no name")


def test_one_that_goes_by_a_checkpoint_is_as_far_as_its_query(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("eu", 0, 1)
    eu, stream = world.tables("eu"), DeltaStream(world)
    with pytest.raises(UsageError, match="is no checkpoint of a streaming query"):
        create(eu, TOPIC, NAME, stream.checkpoint)
    write_batch(tmp_path / "another", 0, 5, table=OTHER)
    with pytest.raises(UsageError, match=f"is not of a query over the table with the id {stream.table_id}.*{OTHER}"):
        create(eu, TOPIC, NAME, str(tmp_path / "another"))
    stream.run()
    monkeypatch.chdir(world.folder)
    one = create(eu, TOPIC, NAME, "checkpoint-of-theirs")
    assert one == create(eu, TOPIC, NAME, stream.checkpoint)
    assert (one.checkpoint, one.finished, progress(eu, one)) == (stream.checkpoint, None, 1)
    world.write("eu", 1, 2)
    assert progress(eu, one) == 1
    stream.run()
    assert progress(eu, one) == 2
    with pytest.raises(UsageError, match=f"goes by the checkpoint {stream.checkpoint}, which says how far it is"):
        finish(eu, TOPIC, NAME, 2)
    with pytest.raises(UsageError, match=f"is there already, and goes by the checkpoint {stream.checkpoint}"):
        create(eu, TOPIC, NAME)
    query = json.loads(Path(stream.checkpoint, "metadata").read_text())["id"]
    write_batch(Path(stream.checkpoint), 99, 51, table=stream.table_id, query=query)
    with pytest.raises(UnsafeError, match="has finished version 50, and its log ends at version 2: an older copy was put back"):
        progress(eu, one)


def test_a_checkpoint_that_is_another_query_s_by_now_does_not_count_until_it_is_created_anew(world: World) -> None:
    for first in range(2):
        world.write("eu", first, first + 1)
    eu, stream = world.tables("eu"), DeltaStream(world)
    stream.run()
    one = create(eu, TOPIC, NAME, stream.checkpoint)
    assert progress(eu, one) == 2
    Path(stream.checkpoint).rename(world.folder / "the-first-one")
    another = DeltaStream(world, startingVersion=2)
    another.run()
    why = f"reports of .* follows the streaming query with the id {one.query_id}, and {stream.checkpoint} is of one with the id "
    for look in (lambda: progress(eu, one), lambda: create(eu, TOPIC, NAME, stream.checkpoint)):
        with pytest.raises(UnsafeError, match=f"{why}.*delete it and create it anew"):
            look()
    (here, _) = version_standings({"eu": eu, "us": world.tables("us")}, world.config, TOPIC, NAME)
    assert here.finished is None
    assert "follows the streaming query with the id" in (here.unfinished_why or "")
    delete(eu, TOPIC, NAME)
    again = create(eu, TOPIC, NAME, stream.checkpoint)
    assert again.query_id != one.query_id
    assert progress(eu, again) == 2


def test_two_topics_have_subscriptions_of_one_name_and_one_has_not_more_than_its_controller_takes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SUBSCRIPTIONS", 1)
    other = Topic.parse("persistent://shop/web/orders")
    for topic in (TOPIC, other):
        world.write("eu", 0, 1, topic=topic)
        create(world.tables("eu"), topic, NAME)
    with pytest.raises(UsageError, match=r"orders has 1 version subscriptions in eu, and can have no more"):
        create(world.tables("eu"), other, "one-more")
    assert create(world.tables("eu"), other, NAME).subscription == NAME, "one that is there is no other one"
    finish(world.tables("eu"), other, NAME, 1)
    assert [(one.topic, one.finished) for one in version_subscriptions(world.tables("eu"))] == [(TOPIC, None), (other, 1)]
