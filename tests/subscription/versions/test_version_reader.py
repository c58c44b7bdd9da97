"""The code that a consumer of versions is given: it survives expiry and sees messages alone."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from geo.delta.appending import append_frame
from geo.ops.maintain import maintain
from geo.subscription.versions.version_reader import query, stream_code
from tests.world import World


@pytest.mark.parametrize(
    ("table", "by_path", "start", "code"),
    [
        (
            "/eu/it's", True, None,
            'spark.readStream.format("delta").option("ignoreDeletes", "true").load("/eu/it\'s").where("marker IS NULL")',
        ),
        (
            "main.geo.t", False, 7,
            'spark.readStream.format("delta").option("ignoreDeletes", "true").option("startingVersion", "7").table("main.geo.t").where("marker IS NULL")',
        ),
    ],
)  # fmt: skip
def test_it_is_one_expression(table: str, by_path: bool, start: int | None, code: str) -> None:
    assert stream_code(table, by_path=by_path, start=start) == code
    compile(code, "", "eval")


@pytest.mark.spark
def test_a_real_stream_of_it_goes_on_behind_an_expiry_and_gets_no_marker(world: World) -> None:
    world.rewrite(("eu", "us"), [], ttl="2 days")
    world.write("eu", 0, 3)
    log = world.log("eu")
    days = F.expr("INTERVAL 9 DAYS")
    old = world.entries("eu", 0, 4).withColumns(
        {"ledger_id": F.lit(2).cast("bigint"), "publish_time": F.col("publish_time") - days, "publish_date": F.current_date() - 9}
    )
    append_frame(log, old)
    read: list[tuple[int, int]] = []

    def batch(rows: DataFrame, number: int) -> None:
        read.extend((row["ledger_id"], row["entry_id"]) for row in rows.collect())

    def run() -> list[tuple[int, int]]:
        read.clear()
        stream: DataFrame = eval(stream_code(log.name, by_path=True), {"spark": world.spark})  # noqa: S307
        writer = stream.writeStream.foreachBatch(batch).option("checkpointLocation", str(world.folder / "of-theirs"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(read)

    assert run() == [*((1, entry) for entry in range(3)), *((2, entry) for entry in range(4))]
    maintain(world.spark, world.config, "eu")
    assert log.read().where("ledger_id = 2").isEmpty(), "they have expired"
    world.write("eu", 3, 5)
    append_frame(log, world.entries("eu", 0, 1).withColumns({"ledger_id": F.lit(3).cast("bigint"), "marker": F.lit("SNAPSHOT")}))
    assert run() == [(1, 3), (1, 4)]
    assert {row["entry_id"] for row in world.spark.sql(query(log.sql)).collect()} == set(range(5))
