"""How long a publisher waits for another region: beside publishing alone, and beside what the link takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from geo.log.publish import publish
from geo.log.publisher import Published
from tests.benchmarks.bench import Bench, replica_lags
from tests.running import Running

_ROWS, _WARM_UP = 10, 3


def waiting(bench: Bench, rounds: int) -> Iterator[str]:
    """Batches of ten rows, in turn without and with `wait_for=["eu"]`, while the link runs in this process."""
    topic = bench.topic("waiting")
    seconds: dict[str, list[float]] = {"alone": [], "waits": [], "held": []}

    def once(number: int, wait_for: list[str] | None) -> tuple[float, float | None]:
        rows = bench.spark.range(_ROWS).selectExpr("concat('k', id) AS key", "cast(cast(id AS string) AS binary) AS payload")
        began = time.monotonic()
        done = publish(rows, topic, bench.world.config, "us", producer="bench", publish_id=f"{number}", wait_for=wait_for)
        assert isinstance(done, Published)
        return time.monotonic() - began, max(done.held_after.values(), default=None) if done.held_after else None

    once(-1, None)
    with Running(bench.world, "eu", trigger="1 second"):
        once(-2, ["eu"])  # the link is up
        for number in range(rounds + _WARM_UP):
            alone, _ = once(2 * number, None)
            waits, held = once(2 * number + 1, ["eu"])
            if number >= _WARM_UP:
                seconds["alone"].append(alone)
                seconds["waits"].append(waits)
                seconds["held"].append(held or 0.0)
    p50 = {name: statistics.median(found) for name, found in seconds.items()}
    lags = sorted(replica_lags(bench.world, topic))
    yield (
        f"{rounds} batches of {_ROWS} rows: publish {p50['alone']:.2f} s (p50), publish with wait_for=['eu'] {p50['waits']:.2f} s, of which it "
        f"waited {p50['held']:.2f} s; the link took {statistics.median(lags):.2f} s from commit to commit (p50)"
    )
