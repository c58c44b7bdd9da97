"""Real `geo` processes for tests: started in a process group of their own, watched, and ended with real signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from geo.crash import CrashPoint
from tests.waiting import until

JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""For a JVM that lives half a minute: compile quickly, not well."""

JAVA_OF_TESTS = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000 -XX:+UseSerialGC -Xmn400m"
)
"""For the JVMs of the tests' own sessions: compile well only what is called ten times as often as by default. A third of their
processor time went into that. And look for garbage in one thread, seldom: two such JVMs share two cores."""

LEAST = {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Spark writes every plan out for a UI that is off; the shortest form.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "100",
    # Compiling a class for each of thousands of tiny plans is a quarter of the time. The notebooks, the demo, the broker on a
    # standalone master and the storages, which are commands of their own, have it on, as users do.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # For each call of its own functions PySpark tells the JVM from which line it came, by several questions, for error messages.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # Spark looks after each of its own rules whether the plan is one.
    "spark.sql.lightweightPlanChangeValidation": "false",
}
"""The least of everything: for sessions that tests make for themselves."""

_OF_PEOPLE = r"\S+ \S+Z \w+ +geo \w+ (started|goes on|ended)"
_OF_PROGRAMS = r'\{"ts": .*"event": "(start|heartbeat|stop|[A-Z]+)"'
OF_RUN = re.compile(f"^({_OF_PEOPLE}|{_OF_PROGRAMS}).*\\n?", re.MULTILINE)
"""What is logged of a run that takes long, and of changes for programs, in any order (`cli/test_run_log.py`)."""

LIMIT_S = 400.0
"""A process that takes longer hangs: starting Spark takes 10 s, on a busy machine 30, and some have much to do."""


def environment(**more: str) -> dict[str, str]:
    """Of a process that lives half a minute: LEAST as far as a session of its own says nothing else, as arguments. A folder of settings
    (SPARK_CONF_DIR) would stand before Spark's jars, and Java then reads each class anew (`shared_classes.py`)."""
    from geo.session import LOCAL_DEFAULTS, SPARK_DEFAULTS  # brings PySpark

    said = [f"--conf {key}={value}" for key, value in LEAST.items() if key not in {**SPARK_DEFAULTS, **LOCAL_DEFAULTS}]
    submit = " ".join([*said, "pyspark-shell"])
    return {**os.environ, "MASTER": "local[2]", "JDK_JAVA_OPTIONS": JAVA, "PYSPARK_SUBMIT_ARGS": submit, **more}


def last_line(said: str) -> str:
    """The last line that a verb printed, but for what it logs of itself."""
    return OF_RUN.sub("", said).strip().splitlines()[-1]


class GeoProcess:
    """One `geo` command line. Its log is kept in `log` and shown when a wait fails."""

    def __init__(self, log: Path, *args: str, crash: str | None = None) -> None:
        self.log = log
        env = environment(**({"GEO_CRASH": crash} if crash else {}))
        with open(log, "wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "geo", *args], stdout=out, stderr=out, env=env, start_new_session=True
            )

    def signal(self, number: int) -> None:
        """Send a signal to the whole group: Python and its JVM."""
        os.killpg(self._process.pid, number)

    def signal_session(self, number: int) -> None:
        """Send a signal to Python, its JVM, and that one's workers, which have a group of their own, as systemd does to a service."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):
                if int(stat.read_text().rpartition(")")[2].split()[3]) == self._process.pid:
                    os.kill(int(stat.parent.name), number)

    def signal_python(self, number: int) -> None:
        """Send a signal to Python alone, as `kill` and service managers do."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code; minus the signal's number if one ended it."""
        try:
            return self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {LIMIT_S} s:\n{self.log.read_text()}") from None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.poll()

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP has halted the Python process."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def until(self, condition: Callable[[], bool], every_s: float | None = None) -> None:
        """Wait for something this process does. Fails if it ends first. Each look takes a core from what it waits for."""
        until(condition, self.log.read_text, limit_s=LIMIT_S, every_s=every_s, goes_on=lambda: self.poll() is None)

    def end(self) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self._process.wait()


@contextmanager
def geo(folder: Path, *args: str, crash: tuple[CrashPoint, str] | None = None) -> Iterator[GeoProcess]:
    """A `geo` process that does not outlive the test."""
    spec = f"{crash[0].value}:{crash[1]}" if crash else None
    process = GeoProcess(folder / f"{args[0]}-{time.monotonic_ns()}.log", *args, crash=spec)
    try:
        yield process
    finally:
        process.end()
