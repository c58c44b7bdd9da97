"""S3 servers of other makes, and what is shown on them: SeaweedFS, which keeps what a log needs, and S3Mock, which does not and is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

from pyspark.sql import SparkSession

from geo.coordination.first_use import admit
from geo.delta import object_store
from geo.delta.probe import why_unfit
from geo.delta.put_commit import put_commit
from geo.delta.store import Put, StorePath, WritePath
from geo.errors import UnsafeError
from geo.jars import default_folder, ensure_jars, find_java, parse_lock
from geo.journal.cluster import connect_later
from tests.delta.on_s3 import cluster_on
from tests.kafka_broker import free_ports
from tests.object_store import KEY, SECRET, ObjectStore
from tests.spark_master import Failed

_ROOT = Path(__file__).resolve().parents[1]
_START_S = 120.0
_WRITERS, _NAMES, _AT_ONCE = 8, 500, 25
_PROBES = 5
_TIMEOUT_S = 10.0
"""Of a put; SeaweedFS lets who comes second to a name look again each second, so that the eighth waits for seconds."""

_VERSION = "4.48"
"""Of SeaweedFS, as `seaweedfs.lock` has it."""

_CONTRACT = (
    *("tests/delta/test_store.py", "tests/delta/test_object_store.py"),
    *("tests/delta/test_table_on_store.py", "tests/coordination/test_first_use.py"),
    *("-k", "([s3 or test_object_store or on_store or first_use) and not timeout"),
)
"""The tests of what a store promises, those that ask an S3 API."""


class SeaweedFS:
    """One below `folder`. It ends with `close`."""

    make = f"SeaweedFS {_VERSION}"

    def __init__(self, folder: Path) -> None:
        master, volume, filer, s3, *grpc = free_ports(8)
        self.endpoint = f"http://127.0.0.1:{s3}"
        folder.mkdir()
        keys = [{"accessKey": key, "secretKey": SECRET} for key in (KEY, "second", "third")]
        known = {"identities": [{"name": "geo", "credentials": keys, "actions": ["Admin"]}]}
        (folder / "keys.json").write_text(json.dumps(known))
        said = {
            "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "dir": folder, "s3": "true", "s3.port": s3, "s3.config": folder / "keys.json",
            "s3.iam": "false", "s3.autoCreateBucket": "false", "s3.port.iceberg": 0, "s3.port.lance": 0, "s3.localSocket": folder / "s3.sock",
            "master.port": master, "volume.port": volume, "filer.port": filer, "filer.localSocket": folder / "filer.sock",
            "master.telemetry": "false", "master.volumeSizeLimitMB": 64, "volume.max": 5_000,
        }  # fmt: skip
        said |= {f"{part}.port.grpc": port for part, port in zip(("master", "volume", "filer", "s3"), grpc, strict=True)}
        # A bucket begins with one file of its objects, not with seven.
        environment = {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
        command = [str(_weed()), "server", *(f"-{name}={value}" for name, value in said.items())]
        with open(folder / "log", "wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=folder, start_new_session=True)
        _until_it_answers(self._process, self.endpoint, folder / "log")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class S3Mock:
    """One below `folder`. It ends with `close`."""

    make = "S3Mock 4.11.0"

    def __init__(self, folder: Path) -> None:
        http, https = free_ports(2)
        self.endpoint = f"http://127.0.0.1:{http}"
        folder.mkdir()
        jars = ensure_jars(default_folder().with_name("s3mock"), parse_lock(Path(__file__).with_name("s3mock.lock").read_text()))
        options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        command = [find_java(), *options, "-cp", os.pathsep.join(map(str, jars)), "com.adobe.testing.s3mock.S3MockApplication"]
        command += [f"--com.adobe.testing.s3mock.httpPort={http}", f"--server.port={https}", "--server.address=127.0.0.1"]
        with open(folder / "log", "wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, start_new_session=True)
        _until_it_answers(self._process, self.endpoint, folder / "log")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _weed() -> Path:
    """SeaweedFS's program, downloaded once. Raises Failed."""
    lock, folder = Path(__file__).with_name("seaweedfs.lock"), default_folder().with_name("seaweedfs")
    program = folder / _VERSION / "bin" / "weed"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            options = (
                "-q",
                "--no-deps",
                "--only-binary",
                ":all:",
                "--require-hashes",
                "--target",
                f"{made}/{_VERSION}",
                "-r",
                str(lock),
            )
            said = subprocess.run([sys.executable, "-m", "pip", "install", *options], capture_output=True, text=True)
            if said.returncode:
                raise Failed(f"SeaweedFS could not be downloaded:\n{said.stderr}")
            (Path(made) / _VERSION).rename(folder / _VERSION)
    return program


def _until_it_answers(process: subprocess.Popen[bytes], endpoint: str, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(endpoint, timeout=5):  # noqa: S310  # our own endpoint
                return
        except urllib.error.HTTPError as said:
            if said.code == 403:  # without a key
                return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"the server does not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)


def servers(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """What a store promises, on S3 servers of two makes; and of a third one, which does not keep it, that it is refused."""
    yield from _keeps_its_word("moto", "", folder, running)
    seaweedfs = SeaweedFS(folder / "seaweedfs")
    running.callback(seaweedfs.close)
    yield from _keeps_its_word(seaweedfs.make, seaweedfs.endpoint, folder, running)
    mock = S3Mock(folder / "s3mock")
    running.callback(mock.close)
    yield from _is_refused(mock.make, ObjectStore(free_ports(1)[0], folder / "s3mock.log", mock.endpoint), running)


def _keeps_its_word(make: str, behind: str, folder: Path, running: ExitStack) -> Iterator[str]:
    for what, count in _contract(behind).items():
        yield f"{make}: {what} ({count})"
    store = ObjectStore(free_ports(1)[0], folder / f"{make.split(maxsplit=1)[0]}.log", behind)
    running.callback(store.close)
    bucket = f"b{uuid.uuid4()}"
    store.make_bucket(bucket)
    options = store.options() | {"timeout": f"{_TIMEOUT_S}s"}
    writers = [StorePath(object_store.ObjectStore(bucket, options), f"s3a://{bucket}/t") for _ in range(_WRITERS)]
    yield f"{make}: {_one_winner_each(writers, store)}"
    yield f"{make}: {_one_winner_each_while_it_fails(writers, store)}"


def _contract(behind: str) -> Counter[str]:
    """The tests of what a store promises, run on one: how many passed, by what they show. Raises Failed."""
    command = [sys.executable, "-m", "pytest", "-v", "-m", "not spark", *_CONTRACT]
    said = subprocess.run(command, cwd=_ROOT, env={**os.environ, "GEO_TEST_S3": behind}, capture_output=True, text=True)
    if said.returncode:
        raise Failed(said.stdout[-5000:])
    return Counter(name.replace("_", " ") for name in re.findall(r"::test_(\w+)\S* PASSED", said.stdout))


def _at_once(act: Callable[[int, int, Barrier], bool]) -> list[list[bool]]:
    """What each writer says of each name, all writers of a name at once, and of some names at once."""
    barriers = [Barrier(_WRITERS) for _ in range(_NAMES)]
    with ThreadPoolExecutor(_WRITERS * _AT_ONCE) as pool:
        asked = [[pool.submit(act, name, who, barriers[name]) for who in range(_WRITERS)] for name in range(_NAMES)]
        return [[one.result() for one in of_name] for of_name in asked]


def _one_winner_each(writers: Sequence[WritePath], store: ObjectStore) -> str:
    """Raises Failed."""
    began, before = time.monotonic(), store.counts()

    def put(name: int, who: int, together: Barrier) -> bool:
        folder = writers[who] / "names"
        together.wait()
        said = folder.store.put_if_absent(str(folder / f"{name:03}"), b"%d" % who)
        if said is Put.UNKNOWN:
            raise Failed(f"nothing was answered for {name}")
        if said is Put.MADE and f"{name:03}" not in folder.names(f"{name - 1:03}" if name else ""):
            raise Failed(f"a list right after does not show {name}")
        return said is Put.MADE

    said = _at_once(put)
    _believed(said, lambda name: (writers[0] / "names" / f"{name:03}").get().decode())
    counts = store.counts() - before
    return (
        f"{_WRITERS} writers put each of {_NAMES} names if it is absent: one made it, whose bytes are read, and a list right after shows it"
        f" ({counts['PUT']} puts, {counts['PUT'] - _NAMES} answered with 412, {counts['LIST']} lists, {time.monotonic() - began:.0f} s)"
    )


def _one_winner_each_while_it_fails(writers: Sequence[WritePath], store: ObjectStore) -> str:
    """Raises Failed."""
    began, before = time.monotonic(), store.counts()
    store.fail_one_in(20)

    def commit(name: int, who: int, together: Barrier) -> bool:
        if who == 0:
            store.next_of("PUT", "lost", 2)
            if name % 5 == 0:
                store.next_of("PUT", "conflict")
            if name % 50 == 0:
                store.next_of("PUT", "late", seconds=_TIMEOUT_S * 1.5)
        together.wait()
        return put_commit(writers[who] / "_delta_log", name, [{"commitInfo": {"txnId": str(who)}}])

    try:
        said = _at_once(commit)
    finally:
        store.fail_one_in(0)
        store.forget_faults()

    def maker(name: int) -> str:
        return str(json.loads((writers[0] / "_delta_log" / f"{name:020}.json").get())["commitInfo"]["txnId"])

    _believed(said, maker)
    counts = store.counts() - before
    return (
        f"{_WRITERS} writers commit each of {_NAMES} versions: one believes that it did, whose commit is read ({counts['PUT']} puts; "
        f"{counts['lost']} done and not answered, {counts['conflict']} answered with 409, {counts['failed']} requests with 503, "
        f"{counts['late']} done after their time; {time.monotonic() - began:.0f} s)"
    )


def _believed(said: list[list[bool]], maker: Callable[[int], str]) -> None:
    """Of each name one writer says that it made it, and it did. Raises Failed."""
    for name, answers in enumerate(said):
        if sum(answers) != 1 or maker(name) != str(answers.index(True)):
            raise Failed(f"{name}: {answers}, and there is that of {maker(name)}")


def _is_refused(make: str, store: ObjectStore, running: ExitStack) -> Iterator[str]:
    running.callback(store.close)
    store.make_bucket("refused")
    os.environ.update(GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
    tables = connect_later(_no_spark, cluster_on(store, "refused"))
    place = StorePath(object_store.ObjectStore("refused", store.options()), "s3a://refused/t")
    why = Counter(why_unfit(place) is not None for _ in range(_PROBES))
    if why[False]:
        raise Failed(f"{make} was taken {why[False]} times")
    yield f"{make}: found unfit by each of {_PROBES} probes"
    try:
        admit(tables)
    except UnsafeError as refusal:
        yield f"{make}: refused at the first use of a root: {refusal}"
    else:
        raise Failed(f"{make} was taken")


def _no_spark() -> SparkSession:
    raise Failed("the store is asked without Spark")
