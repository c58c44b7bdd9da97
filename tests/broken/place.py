"""Two regions, us and eu, linked both ways, on a local disk or on an S3 API of this machine, in which nothing starts Spark: also verbs that
would, run in this process.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch

from geo.cli.main import main
from geo.coordination import storage_clock
from geo.delta.appending import append_rows
from geo.delta.arrow_rows import rows_table
from geo.delta.create import make_first
from geo.delta.delta_state import newest_state
from geo.delta.driver import Driver
from geo.delta.metadata import commit_properties
from geo.delta.object_store import ObjectStore
from geo.delta.process import this_process
from geo.fleet.replicator import Replicator
from geo.journal.cluster import ClusterTables, Identity
from geo.locations import authority_of
from geo.log.kept_policies import kept
from geo.log.ledgers import Batch, LedgerKey, Span
from geo.log.topics import Registered, known_topics
from geo.names import Topic
from geo.now import now_us, utc_now
from geo.replication.link_topics import LinkReport
from geo.schemas import JOURNALS, TOPIC_LOG, TOPICS, TableSchema
from geo.schemas.table import CLUSTER_PROPERTY, POLICIES_PROPERTY
from geo.testing import config_text
from geo.times import from_us, in_us
from tests.clock_off import clock_off
from tests.delta.on_s3 import no_spark
from tests.far import Far
from tests.object_store import ObjectStore as S3

TOPIC = Topic.parse("persistent://shop/web/orders")
LINKS = [("us", "eu"), ("eu", "us")]


class NoSpark:
    """In the place of a session, which is connected to and asked for nothing."""

    version = "none"

    def __call__(self) -> Any:
        return no_spark()


_BY_ITSELF = property(lambda self: self._me() if self._me is not None else this_process(0))
"""Who a driver is where no JVM commits."""


@contextmanager
def without_spark() -> Iterator[None]:
    """While it lasts, what would start Spark in this process goes on without it, as where tables are there and small: nobody has configured
    another log store, no JVM commits, and a session fails if it is asked for anything."""
    with (
        patch.object(Driver, "log_store", lambda self, scheme: None),
        patch.multiple(Driver, me=_BY_ITSELF, committer=_BY_ITSELF),
        patch("geo.cli.running.session", lambda *_, **__: NoSpark()),
        patch("geo.replication.repair.require_delta", lambda spark: None),
        patch("geo.fleet.broker.require_delta", lambda spark: None),
    ):
        yield


@dataclass(frozen=True)
class Said:
    """What a verb said: its exit code, the JSON that it printed, if it did, and all as text."""

    code: int
    data: Any
    text: str


class Place:
    """The regions, below `folder`; on S3 each has a bucket of its own."""

    def __init__(self, folder: Path, s3: S3 | None) -> None:
        self.s3, self.path, run = s3, folder / "both regions.yaml", uuid.uuid4()
        self.roots = {name: str(folder / name) if s3 is None else f"s3a://{name}-{run}/t" for name in ("us", "eu")}
        reached = "" if s3 is None else f", storage: {json.dumps(s3.storage())}"
        place = f"owner_timeout: 30 seconds{reached}"
        self.path.write_text(config_text(("us", "eu"), LINKS, place=lambda name: f"root: '{self.roots[name]}', {place}"))
        self._away: dict[str, bytes] = {}
        self._is_later, self._appended = False, 0
        for name in self.roots:
            if s3 is None:
                _begin(self.far.tables(name))
            else:
                s3.make_bucket(f"{name}-{run}")

    @property
    def far(self) -> Far:
        """As a process that has just begun."""
        return Far(self.path)

    # -- what goes on in them ----------------------------------------------------------------------------------

    def publish(self, count: int) -> None:
        """Let the producer of us publish messages until there are so many; later on, on a disk, so many more."""
        if self.s3 is None:
            self._make_logs()
        if self._is_later and self.s3 is None:
            self._append(count)
        else:
            self.far.publish(count, TOPIC)

    def _make_logs(self) -> None:
        for name in self.roots:
            tables = self.far.tables(name)
            folder = tables.log(TOPIC).log_folder
            assert folder is not None
            if TOPIC not in {one.topic for one in known_topics(tables)}:
                tables.journal(TOPICS).append([Registered(TOPIC, utc_now(), typed=False, policies=None, sequence=1)])
            make_first(folder, TOPIC_LOG, (), {POLICIES_PROPERTY: str(kept(None))})

    def _append(self, count: int) -> None:
        """As a producer that began before: one that begins now would find that its files have another time than its clock."""
        time_us, first = now_us(), self._appended
        span = Span(LedgerKey("", None), 1, first, first + count - 1)
        of_all = {"origin": "us", "ledger_id": 1, "publish_time": from_us(time_us), "producer": "w"}
        same = {**of_all, "publish_date": from_us(time_us).date()}
        rows = [{**same, "entry_id": entry, "key": f"w{entry}"} for entry in range(first, first + count)]
        log = self.far.log("us", TOPIC)
        append_rows(log, rows_table(TOPIC_LOG.types, rows), Batch("w", time_us, (span,), {}).encode())
        self._appended += count

    def forge(self, count: int, ledger_id: int = 7) -> None:
        """A producer whose storage had a wrong clock appends messages of the year 2200 to the log of us."""
        late = datetime(2200, 1, 1, tzinfo=timezone.utc)
        of_all = {"origin": "us", "ledger_id": ledger_id, "publish_time": late, "producer": "x", "publish_date": late.date()}
        rows = [{**of_all, "entry_id": entry, "key": f"x{entry}"} for entry in range(count)]
        batch = Batch("x", in_us(late), (Span(LedgerKey("", None), ledger_id, 0, count - 1),), {})
        append_rows(self.far.log("us", TOPIC), rows_table(TOPIC_LOG.types, rows), batch.encode())

    def replicate(self, *targets: str) -> list[LinkReport]:
        """A pass of the links into each target."""
        return [one for name in targets or ("eu", "us") for one in Replicator(no_spark, self.far.config, name).run()]

    def geo(self, *arguments: str) -> Said:
        """A verb for these regions."""
        return self.typed([*arguments, "--config", str(self.path)])

    def typed(self, arguments: Sequence[str]) -> Said:
        """A verb as it was told, and nothing behind it."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
        text = out.getvalue()
        return Said(code, json.loads(text) if "json" in arguments and text else None, text + err.getvalue())

    def typed_anew(self, arguments: Sequence[str]) -> Said:
        """As `typed`, in a process of its own: this one remembers what it read of tables that somebody has moved away since."""
        command = [sys.executable, "-m", __name__, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        return Said(ended.returncode, None, ended.stdout + ended.stderr)

    @contextmanager
    def later(self, seconds: float) -> Iterator[None]:
        """While it lasts it is so much later, by this host's clock and the storage's."""
        self._is_later = True
        with clock_off(seconds), self._storage_later(seconds):
            _forget_clocks()
            yield
        _forget_clocks()

    @contextmanager
    def _storage_later(self, seconds: float) -> Iterator[None]:
        now = storage_clock._of_folder

        def of_folder(folder: Path, *, writes: bool) -> int | None:
            told = now(folder, writes=writes)
            return None if told is None else told + round(seconds * 1e6)

        with nullcontext() if self.s3 is not None else patch.object(storage_clock, "_of_folder", of_folder):
            if self.s3 is not None:
                self.s3.go_on(seconds)
            try:
                yield
            finally:
                if self.s3 is not None:
                    self.s3.go_on(0)

    # -- what somebody does to them ----------------------------------------------------------------------------

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Change the configuration."""
        self.path.write_text(change(self.path.read_text()))

    def set_property(self, cluster: str, key: str, value: str) -> None:
        """Of the topic's log, as Spark's SQL does it."""
        folder = self.far.log(cluster, TOPIC).log_folder
        assert folder is not None
        state = newest_state(folder)
        assert state is not None
        assert commit_properties(folder, state, {key: value})

    def move_away(self, what: str) -> None:
        """Move a folder of us, below its root, elsewhere."""
        self._away = self._removed(f"{self.roots['us']}/{what}".rstrip("/"))

    def put_back(self) -> None:
        self._put(self._away)

    def remove_log(self, cluster: str) -> None:
        self._removed(self._log(cluster))

    def older_log(self, cluster: str) -> Mapping[str, bytes]:
        """A copy of the topic's log."""
        return self._files(self._log(cluster))

    def replace_log(self, cluster: str, older: Mapping[str, bytes]) -> None:
        self.remove_log(cluster)
        self._put(older)

    def empty_registry(self) -> None:
        """Let the registry of us be one in which nothing was ever written; on S3 let it be gone."""
        self._removed(f"{self.roots['us']}/system/topics")
        if self.s3 is None:
            _begin(self.far.tables("us"), [TOPICS])

    def _log(self, cluster: str) -> str:
        return f"{self.roots[cluster]}/topics/{TOPIC.path}"

    def _store(self, at: str) -> ObjectStore:
        assert self.s3 is not None
        return ObjectStore(authority_of(at), self.s3.options())

    def _files(self, folder: str) -> dict[str, bytes]:
        if self.s3 is None:
            return {str(file): file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()}
        store = self._store(folder)
        return {name: store.get(name) for name in (f"{folder}/{one}" for one in store.below(folder))}

    def _removed(self, folder: str) -> dict[str, bytes]:
        """The files of a folder, which is gone afterwards."""
        found = self._files(folder)
        if self.s3 is None:
            shutil.rmtree(folder)
        else:
            self._store(folder).delete_all(list(found))
        return found

    def _put(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            if self.s3 is None:
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_bytes(content)
            else:
                self._store(name).put(name, content)


def _forget_clocks() -> None:
    """Else it is noticed after a minute, or an hour, that both were set."""
    storage_clock._held.clear()
    storage_clock._told.clear()


def _begin(tables: ClusterTables, schemas: Sequence[TableSchema] = JOURNALS) -> None:
    """Tables on a disk are Spark's to make; these are as it makes them."""
    for schema in schemas:
        own = {CLUSTER_PROPERTY: str(Identity.of_new(tables.cluster.name))} if schema is TOPICS else {}
        folder = tables.journal(schema).table.log_folder
        assert folder is not None
        make_first(folder, schema, (), own)


if __name__ == "__main__":
    with without_spark():
        sys.exit(main())
