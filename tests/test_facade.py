"""What `from geo import …` gives: names and paths where people have these, one line where it is printed, tables where it is shown."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path

import pytest

import geo
from geo import shown
from geo.errors import AlreadyOwnedError, FencedError, InvalidNameError, SetupError
from geo.log.publish_stream import FrameStream
from geo.log.publisher import Published
from geo.names import Topic
from geo.testing import config_text
from tests.world import TOPIC, World

NAME = str(TOPIC)


def test_each_name_is_there_and_none_is_that_of_a_module_which_would_hide_it() -> None:
    assert {name for name in geo.__all__ if find_spec(f"geo.{name}")} == set()
    assert {name for name in geo.__all__ if not hasattr(geo, name)} == set()
    assert set(geo.__all__) <= set(dir(geo))
    with pytest.raises(AttributeError, match="'geo' has no attribute 'publsh'"):
        _ = geo.publsh


LOOK = """
import sys
from geo import load, status
found = status("geo.yaml"), status(load("geo.yaml"), "persistent://shop/web/*")
print([repr(one).partition(" at ")[0] for one in found], found[0].to_pandas()["link"].tolist(), "pyspark" in sys.modules)
"""


def test_what_is_read_comes_first_then_the_topic_the_configuration_and_the_cluster() -> None:
    where = ["topic", "topics", "name", "subscription", "config", "cluster", "source", "target"]
    for name in ("publish", "publish_json_lines", "publish_kafka", "publish_table", "Subscription", "Subscriptions", "failover",
                 "subscription_status", "verify", "backfill", "status"):  # fmt: skip
        needed = [one.name for one in signature(getattr(geo, name)).parameters.values() if one.default is Parameter.empty]
        needed = [one for one in needed if one != "options"]
        order = [one for one in needed if one in where]
        assert order == sorted(order, key=where.index), name
        assert needed[len(needed) - len(order) :] == order, f"{name}: what is read comes before"
    with pytest.raises(InvalidNameError, match="expected a topic or its name, and not what a PosixPath is"):
        Topic.of(Path("geo.yaml"))  # type: ignore[arg-type]


def test_what_takes_spark_says_so_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(module: str) -> None:
        raise ModuleNotFoundError(f"No module named {lacks!r}", name=lacks)

    monkeypatch.setattr(geo, "import_module", lacking)
    lacks = "pyspark"
    with pytest.raises(SetupError, match=r"publish takes Spark, and there is no pyspark here: pip install 'delta-geo\[spark\]'"):
        _ = geo.publish
    lacks = "another"
    with pytest.raises(ModuleNotFoundError, match="another"):
        _ = geo.publish


@pytest.mark.slow
def test_who_looks_needs_no_spark(tmp_path: Path) -> None:
    (tmp_path / "geo.yaml").write_text(config_text(("eu", "us"), [("us", "eu")]))
    for name in ("eu", "us"):
        (tmp_path / name).mkdir()
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "['<Status no problem', '<Status no problem'] ['us->eu'] False\n", done.stderr


def test_what_comes_out_of_a_table_is_text_in_a_page_and_what_nobody_knows_is_no_zero() -> None:
    class One(shown.Shown):
        def __repr__(self) -> str:
            return "<One>"

        def sections(self) -> shown.Sections:
            return {"first": [{"a": "<script>\x1b[1m", "b": 1234567, "c": None, "d": {"x": 1}, "e": ("y", "z")}], "none": []}

    page = One()._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;\N{REPLACEMENT CHARACTER}[1m" in page
    assert [cell in page for cell in (">1,234,567<", "<td>?</td>", "<td>x: 1</td>", "<td>y, z</td>", "none")] == [True] * 4 + [
        False
    ]
    assert One().to_pandas().columns.tolist() == ["a", "b", "c", "d", "e"]
    assert One().to_pandas("none").empty


@pytest.mark.spark
def test_names_and_paths_do_where_objects_do_and_what_is_returned_says_what_it_is(world: World) -> None:
    spark, path, everything = world.spark, world.path, "persistent://*/*/*"
    done = geo.publish(world.rows(0, 5), NAME, path, "us", order_by="number")
    again = geo.publish(world.rows(0, 5), TOPIC, world.config, "us", order_by="number")
    assert [one.rows for one in (done, again) if isinstance(one, Published)] == [5, 0]
    assert geo.backfill(spark, str(path), "us", "eu", topics=TOPIC)[0][0].messages == 5
    report = geo.verify(spark, str(path), NAME)
    assert repr(report) == "<VerifyReport clean: 1 topic, 2 links, 5 messages compared, 0 in flight>"
    assert sorted(report.to_pandas()[["link", "compared"]].values.tolist()) == [["eu->us", 0], ["us->eu", 5]]
    assert "NOT CLEAN" not in report._repr_html_()
    assert [len(report.to_pandas(section)) for section in report.sections()] == [2, 2, 0, len(report.notes)]

    billing = geo.Subscription(spark, NAME, "billing", path, "us")
    assert repr(billing) == f"<subscription billing of {NAME} in us: does not run, 0 delivered, 0 acknowledged>"
    billing.run(lambda messages: messages, trigger="available-now")
    assert repr(billing).endswith("does not run, 5 delivered, 5 acknowledged>")
    assert "billing" in repr(geo.Subscriptions(spark, everything, "billing", path, "us"))
    would = geo.failover(spark, NAME, "billing", str(path), "us", "eu", dry_run=True)
    assert repr(would) == f"<Failover billing of {NAME} would move from us to eu: 0 to deliver, at most 0 of them again>"
    assert "<td>at_most_repeated</td>" in would._repr_html_()
    standing = geo.subscription_status(spark, NAME, "billing", path)
    assert repr(standing) == "<2 Standing>"
    assert standing.to_pandas().set_index("cluster")["backlog"]["us"] == 0
    found = geo.status(path, topics=NAME)
    assert sorted(found.to_pandas()["link"]) == ["eu->us", "us->eu"]
    assert sorted(found.to_pandas("clusters")["cluster"]) == ["eu", "us"]
    assert "<td>us-&gt;eu</td>" in found._repr_html_()


@pytest.mark.spark
def test_a_cell_that_is_run_again_is_told_what_runs_and_goes_on_if_it_says_so(world: World) -> None:
    def cell(**more: bool) -> FrameStream:
        rows = world.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
        stream = geo.publish(rows.selectExpr("CAST(value AS STRING) AS key"), NAME, world.path, "us", trigger="100 ms", **more)  # type: ignore[arg-type]
        assert isinstance(stream, FrameStream)
        return stream

    first = cell()
    assert "runs, " in repr(first)
    with pytest.raises(
        AlreadyOwnedError, match=r"already run by this process since .* call stop\(\) of what runs, or begin with take_over=True"
    ):
        cell()
    second = cell(take_over=True)
    with suppress(FencedError):  # unless Spark has stopped it before it met that: it lets one run of a checkpoint be active
        first.await_termination(60)
    assert not second.await_termination(0), "it runs, or this raises what ended it"
    assert [repr(one).count("does not run") for one in (first, second)] == [1, 0]
    second.stop()
    assert second.await_termination(0), "it has ended"
    assert "does not run, " in repr(second)
