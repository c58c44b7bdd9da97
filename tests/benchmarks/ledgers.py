"""How long a producer's start takes behind many ledgers of history, and what it holds for that.

The rows are made directly, as a file a minute leaves them in two years.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from geo.journal.cluster import connect
from geo.log.finished import move_ended
from geo.log.publish import publish_json_lines
from geo.schemas import LEDGERS
from tests.benchmarks.bench import Bench

_NEW, _OLD = 10, 100
"""Files that are there at each start: new ones, and some of the oldest, which are finished."""

_LINE = json.dumps({"key": "k"}) + "\n"


def producer_starts(bench: Bench, ledgers: int) -> Iterator[str]:
    """The start of a producer with little history, beside one with much, and with much of its own, once that was moved away."""
    folder = bench.folder / "in"
    folder.mkdir()
    _start(bench, folder, "mine")
    yield f"with little history: {_start(bench, folder, 'beside')}"
    _fill(bench, folder, "mine", ledgers)
    yield f"beside {ledgers:,} ledgers of another producer: {_start(bench, folder, 'beside')}"
    began = time.monotonic()
    moved = move_ended(connect(bench.spark, bench.world.config.cluster("us")), datetime.now(timezone.utc))
    yield f"{moved:,} sources that ended were moved in {time.monotonic() - began:.1f} s, off every start's way"
    for number in range(_OLD):
        (folder / f"old-{number}.jsonl").write_text(_LINE)
    yield f"with {ledgers:,} of its own, of which {_OLD} files are there: {_start(bench, folder, 'mine')} (wanted: under 2 s, 100 MB)"


def _start(bench: Bench, folder: Path, producer: str) -> str:
    """A producer of the folder, of which a few files are new to it."""
    for number in range(_NEW):
        (folder / f"{producer}-{time.monotonic_ns()}-{number}.jsonl").write_text(_LINE)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    held, began = _status_mb("VmRSS"), time.monotonic()
    topic, config = bench.topic("ledgers"), bench.world.config
    stream = publish_json_lines(bench.spark, str(folder), topic, config, "us", producer=producer)
    opened = time.monotonic() - began
    stream.await_termination()
    took, grew = time.monotonic() - began, _status_mb("VmHWM") - held
    return f"{opened:.2f} s, {stream.published.rows} messages published after {took:.2f} s, Python's peak {grew:+.0f} MB"


def _fill(bench: Bench, folder: Path, producer: str, ledgers: int) -> None:
    """As many rows of finished files in `system/ledgers`. The newest row of the producer stays that."""
    journal = connect(bench.spark, bench.world.config.cluster("us")).journal(LEDGERS)
    (like, *_) = journal.newest(producer=producer)
    end = json.dumps(["1", f"{len(_LINE)}:1:{hashlib.sha256(_LINE.encode()).hexdigest()[:16]}"], separators=(",", ":"))
    given = dict.fromkeys(LEDGERS.names, "NULL") | {
        "topic": f"'{like['topic']}'", "producer": f"'{producer}'", "ledger_id": "id + 1", "end": "0", "uncompared": "array()",
        "source": f"concat('{folder}/old-', id, '.jsonl')", "source_end": f"'{end}'", "source_count": "1", "source_hash": "0",
        "publish_time": "timestamp '2024-01-01'", "recorded_at": "timestamp '2024-01-01'", "table_id": f"'{like['table_id']}'",
        "table_version": "0", "complete": "true", "generation": "0", "sequence": "id",
    }  # fmt: skip
    columns = (f"CAST({sql} AS {LEDGERS.types[name]}) AS `{name}`" for name, sql in given.items())
    journal.append_rows(bench.spark.range(0, ledgers, 1, 1).selectExpr(*columns))


def _status_mb(name: str) -> float:
    """What the system says of this process's memory."""
    return int(re.findall(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[0]) / 1024
