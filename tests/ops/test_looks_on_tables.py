"""What the doctor says of real tables: owners, versions, regions that are not there. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from geo.coordination.claiming import claim
from geo.coordination.owners import owned_now
from geo.coordination.ownership import fences_of, release
from geo.coordination.runners import producer_runner
from geo.coordination.signs import record
from geo.log.topics import Registered
from geo.now import now_us, utc_now
from geo.ops.looks.owners import CLAIMED_US
from geo.reasons import Reason
from geo.schemas import PROCESSES, TOPICS
from geo.version import program_version
from tests.broken.place import TOPIC, Place, without_spark
from tests.broken.screens import doctor

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with without_spark():
        one = Place(tmp_path, None)
        one.publish(10)
        one.replicate("eu")
        yield one


def test_a_fence_of_another_claim_than_the_newest_is_told(place: Place) -> None:
    place.replicate("us")
    tables = place.far.tables("us")
    owned = claim(tables, [[producer_runner(tables, TOPIC, "q")]])
    (one,) = owned_now(tables)
    assert doctor(place).found == ()
    assert (found := fences_of(tables, one)) == (f"{one.generation:012}-{one.token}", [f"{one.generation:012}-{one.token}"])
    folder = tables.checkpoint("fences", producer_runner(tables, TOPIC, "q").path)
    other = f"{one.generation + 1:012}-another"
    tables.files.create(f"{folder}/{other}", "another")
    (told,) = doctor(place).found
    assert (told.where, told.code) == (one.runner, Reason.FENCED.value)
    assert found[0] in told.what
    assert other in told.what
    tables.files.remove(f"{folder}/{other}")
    before = f"{one.generation - 1:012}-before"
    tables.files.create(f"{folder}/{before}", "before")
    assert doctor(place).found == (), "it is claimed at this moment: the fence before goes last"
    with place.later(CLAIMED_US / 1e6):
        (told,) = doctor(place).found
    assert before in told.what
    tables.files.remove(f"{folder}/{before}")
    release(owned)


def test_a_process_of_another_version_is_told_while_it_owns_something(place: Place) -> None:
    place.replicate("us")
    tables = place.far.tables("us")
    owned = claim(tables, [[producer_runner(tables, TOPIC, "q")]])
    record(tables, now_us())
    (row,) = tables.journal(PROCESSES).newest(process=tables.me.name)
    assert row["program"] == program_version()
    assert doctor(place).found == ()
    tables.journal(PROCESSES).append([{**row, "program": "0.0.1", "sequence": row["sequence"] + 10**9}])
    screen = doctor(place)
    (told,) = screen.found
    assert (screen.code, told.code) == (0, Reason.SETUP.value)
    assert f"runs delta-geo 0.0.1, this one is {program_version()}" in told.what
    assert place.geo("doctor", "--engine", "native", "--fail-on", "warn").code == 1
    release(owned)
    assert doctor(place).found == ()


def test_a_root_at_which_nothing_ever_was_is_told_and_is_an_error_once_something_should_be_there(place: Place) -> None:
    old = Registered(TOPIC, utc_now() - timedelta(hours=1), typed=False, policies=None, sequence=2)
    roots = dict(place.roots)
    place.rewrite(lambda text: text.replace(roots["eu"], f"{roots['eu']}-wrong").replace(roots["us"], f"{roots['us']}-wrong"))
    said = place.geo("doctor", "--engine", "native", "-o", "json")
    assert [one["what"] for one in said.data if one["level"] == "warn"] == [
        f"nothing was ever published or replicated at {roots[name]}-wrong" for name in ("us", "eu")
    ]
    place.rewrite(lambda text: text.replace(f"{roots['us']}-wrong", roots["us"]))
    place.far.tables("us").journal(TOPICS).append([old])
    told = {(one.where, one.code) for one in doctor(place).found}
    assert ("cluster eu", Reason.TARGET_GONE.value) in told


def test_a_region_whose_registry_was_emptied_is_told_apart_from_one_that_is_gone(place: Place) -> None:
    place.empty_registry()
    told = {one.where: (one.code, one.fix) for one in doctor(place).found}
    code, fix = told["cluster us"]
    assert (code, " --cluster us --from eu" in fix) == (Reason.REGISTRY_EMPTY.value, True)
    place.move_away("")
    assert {one.where: one.code for one in doctor(place).found}["cluster us"] == Reason.SOURCE_GONE.value
