"""A real Spark standalone master with its workers for tests, jobs of this repository submitted to it, and what their executors did."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
import venv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark

from tests.processes import JAVA
from tests.shared_classes import java_options

WORKERS = 2

_ROOT = Path(__file__).resolve().parents[1]
_LIMIT_S = 300.0
"""Of each wait: it only bounds a hang."""


class Failed(Exception):
    """Something is not as it should be."""


def tell(program: str, stories: Mapping[str, Callable[[Path, ExitStack], Iterator[str]]]) -> int:
    """Go through stories by their names, each in a folder of its own, and print what each says is shown, with the time. What they
    start is ended at their end, also by SIGTERM. Returns the exit code: 0, or 1 with what failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    for name, story in stories.items():
        with tempfile.TemporaryDirectory(prefix=f"geo-{name}-") as folder, ExitStack() as running:
            try:
                for line in story(Path(folder), running):
                    print(f"{time.monotonic() - began:4.0f} s  {name}: {line}", flush=True)
            except Failed as failed:
                print(f"{program}: {name}: {failed}", file=sys.stderr)
                return 1
    print(f"{program}: shown in {time.monotonic() - began:.0f} s")
    return 0


class Started:
    """A program in a session of its own, so that all that it starts can be found and is ended with it."""

    def __init__(self, name: str, log: Path, *command: str, env: Mapping[str, str]) -> None:
        self.name, self.log = name, log
        with open(log, "wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=env, cwd=log.parent, start_new_session=True)

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for something that it does. Raises Failed if it ends first."""
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{self.name}: {what} did not happen:\n{self.said[-5000:]}")
            time.sleep(0.1)

    def finds(self, pattern: str) -> str:
        """The group of a pattern in what it says, as soon as it says it."""
        self.until(pattern, lambda: re.search(pattern, self.said) is not None)
        found = re.search(pattern, self.said)
        assert found is not None
        return found[1]

    def ends(self, code: int) -> None:
        """Wait for its end, and that of all that it started. Raises Failed for another exit code."""
        try:
            found = self._process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name}: still running:\n{self.said[-5000:]}") from None
        if found != code:
            raise Failed(f"{self.name}: exit code {found} instead of {code}:\n{self.said[-5000:]}")
        deadline = time.monotonic() + _LIMIT_S
        while left := self.processes():
            if time.monotonic() > deadline:
                raise Failed(f"{self.name}: has ended, its processes {left} live on")
            time.sleep(0.1)

    def signal(self, number: int) -> None:
        """To the process that was started, as a service manager does."""
        self._process.send_signal(number)

    def processes(self) -> list[int]:
        """What runs in its session."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self._process.pid and state != "Z":
                    found.append(int(stat.parent.name))
        return found

    def end(self) -> None:
        """End it and all that it started, whatever they do."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + 10
            while self.processes() and time.monotonic() < deadline:
                time.sleep(0.1)
        self._process.wait()


class Standalone:
    """A master and its workers, each a process."""

    def __init__(self, folder: Path, running: ExitStack, *, cores: int = 1, memory: str = "1g") -> None:
        self._folder, self._running = folder, running
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
        self._env |= {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
            "JDK_JAVA_OPTIONS": f"{JAVA} {java_options()}",
            "PYSPARK_PYTHON": _bare_python(folder / "python"),
        }
        master = self._daemon("master", "Master", "--webui-port", "0")
        self.url = master.finds(r"Starting Spark master at (spark://\S+)")
        self._page = master.finds(r"MasterWebUI .* started at (http://\S+)") + "/json/"
        for name in self.workers:
            own = "--work-dir", str(folder / name), "--cores", str(cores), "--memory", memory, "--webui-port", "0"
            self._daemon(name, "Worker", *own, self.url)
        master.until("the registration of both workers", lambda: len(self._alive()) == WORKERS)

    workers = tuple(f"worker-{number}" for number in range(1, WORKERS + 1))

    def _daemon(self, name: str, which: str, *arguments: str) -> Started:
        program = str(Path(pyspark.__file__).with_name("bin") / "spark-class")
        at = "--host", "127.0.0.1", "--port", "0"
        return self._start(name, program, f"org.apache.spark.deploy.{which.lower()}.{which}", *at, *arguments)

    def _start(self, name: str, *command: str, **env: str) -> Started:
        started = Started(name, self._folder / f"{name}.log", *command, env={**self._env, **env})
        self._running.callback(started.end)
        return started

    def _alive(self) -> list[Any]:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(self._page, timeout=10) as answer:
            return [worker for worker in json.load(answer)["workers"] if worker["state"] == "ALIVE"]

    def submit(self, name: str, job: str, *arguments: str, options: Sequence[str] = (), **env: str) -> Application:
        """A job of this repository, on all workers unless the options of spark-submit say otherwise. `env` is its driver's."""
        events = self._folder / f"{name}-events"
        events.mkdir()
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            # Nothing begins before both workers have an executor.
            "spark.scheduler.minRegisteredResourcesRatio": "1",
        }
        said = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        command = str(_ROOT / "spark-submit.sh"), "--master", self.url, *said, *options, f"jobs/{job}.py", *arguments
        return Application(self, self._start(name, *command, **env), events)

    def worker_of(self, application: str, executor: str) -> str:
        """The worker that ran an executor: it has its folder."""
        return next(name for name in self.workers if (self._folder / name / application / executor).is_dir())


def _bare_python(folder: Path) -> str:
    """A Python with the packages of this one, but for those that are only linked, as the delta-geo of a checkout is."""
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "bin" / "python"
    if subprocess.run([python, "-c", "import geo"], capture_output=True, cwd=folder).returncode == 0:
        raise Failed(f"{python} has delta-geo, so nothing would be shown by it")
    subprocess.run([python, "-c", "import pyarrow, pyspark"], check=True, cwd=folder)
    return str(python)


@dataclass
class Work:
    """What executors did in one application: tasks that ended well, by worker and by what Spark calls the operators of their stage,
    and how many rows they wrote into tables."""

    tasks: Counter[str] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    written: int = 0

    def of(self, kind: str, *, least: int) -> str:
        """How many tasks of a kind each worker had. Raises Failed if one had none, or all had fewer than `least`."""
        found = Counter({worker: count for (worker, of), count in self.kinds.items() if of == kind})
        return on_both(found, kind, least)


def on_both(found: Counter[str], what: str, least: int) -> str:
    if len(found) < WORKERS or found.total() < least:
        raise Failed(f"{what}: {dict(found)}; {least} tasks were wanted, and each of {WORKERS} workers to have some")
    return " and ".join(f"{found[worker]} on {worker}" for worker in sorted(found))


@dataclass
class Application:
    """A job that was submitted."""

    standalone: Standalone
    process: Started
    events: Path

    def work(self) -> Work:
        """What its executors did, once it has ended, by its event log."""
        (log,) = self.events.iterdir()
        stages: dict[int, set[str]] = {}
        work = Work()
        for event in map(json.loads, log.read_text().splitlines()):
            if event["Event"] == "SparkListenerStageSubmitted":
                info = event["Stage Info"]
                stages[info["Stage ID"]] = {json.loads(rdd["Scope"])["name"] for rdd in info["RDD Info"] if "Scope" in rdd}
            elif event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success":
                worker = self.standalone.worker_of(log.name.partition(".")[0], event["Task Info"]["Executor ID"])
                work.tasks[worker] += 1
                work.kinds.update((worker, kind) for kind in stages[event["Stage ID"]])
                work.written += event["Task Metrics"]["Output Metrics"]["Records Written"]
        on_both(work.tasks, self.process.name, WORKERS)
        return work
