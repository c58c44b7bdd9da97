"""spark-submit.sh, run for real: code, settings and jars arrive, and the exit code and signals are the job's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import JAVA
from tests.shared_classes import java_options

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120  # a start takes 7 to 15 s; this only bounds a hang

TABLE_JOB = """
import sys
import geo, geo.schemas
from geo.session import require_delta, session, set_what_is_needed

spark = session("spark-submit test", conf={"spark.sql.session.timeZone": "Europe/Paris"})
require_delta(spark)  # also says that the conf above, of no concern to a given session, did not reach it
spark.range(3).write.format("delta").save(sys.argv[1])
print("code", geo.__file__)
print("arguments", sys.argv[2:])
set_what_is_needed(spark)
print("beside the driver", spark.sparkContext.environment["PYTHONPATH"])
print("executor cores", spark.sparkContext.getConf().get("spark.executor.cores"))
sys.exit(7)
"""

WAITING_JOB = """
import os, sys, time
from geo.session import session

session("spark-submit test")
with open(sys.argv[1] + ".part", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(600)  # in no call into Spark: nothing but the signal can end it
"""


def environment() -> dict[str, str]:
    """As a user's shell has it: nothing of the session these tests may run in, and this Python."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    java = {"JDK_JAVA_OPTIONS": f"{JAVA} {java_options()}"}  # how quickly it starts
    return ours | java | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "MASTER": "local[1]"}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not alive(pid)


def submit(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "spark-submit.sh"), *arguments],
        cwd=cwd,
        env=environment() | env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.mark.spark
def test_a_job_gets_our_code_settings_and_jars_and_its_exit_code_passes_through(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(TABLE_JOB)
    for name in ("schemas", "jobs"):  # of the user's own, beside his job
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('of the user')\n")
    done = submit("--conf", "spark.executor.cores=1", "job.py", "--", "table", "--flag", "a b", "--", cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    out = done.stdout.splitlines()
    assert any(line.startswith("code ") and ".zip/" in line for line in out), done.stdout
    assert any(line.startswith("beside the driver ") and line.endswith(".zip") for line in out), done.stdout
    assert "arguments ['--flag', 'a b', '--']" in out  # only the first -- is ours
    assert "executor cores 1" in out
    assert (tmp_path / "table" / "_delta_log" / "00000000000000000000.json").exists()


@pytest.mark.spark
@pytest.mark.crash
def test_sigterm_ends_spark_submit_and_the_job(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(WAITING_JOB)
    ready = tmp_path / "pid"
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(
            [str(ROOT / "spark-submit.sh"), "job.py", str(ready)], cwd=tmp_path, env=environment(), stdout=log, stderr=log
        )
    job = None
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert ready.exists(), (tmp_path / "log").read_text()
        job = int(ready.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGTERM
        assert wait_until_gone(job, timeout_s=15), "the job lives on without its spark-submit"
    finally:
        process.kill()
        process.wait()
        if job is not None and alive(job):
            os.kill(job, signal.SIGKILL)


def test_a_missing_job_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    done = submit("jobs/no_such_job.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no job file jobs/no_such_job.py" in done.stderr


def test_cluster_mode_on_a_standalone_master_is_refused_before_spark_does(tmp_path: Path) -> None:
    (tmp_path / "job.py").touch()
    done = submit("--deploy-mode", "cluster", "job.py", cwd=tmp_path, MASTER="spark://nowhere:7077")
    assert done.returncode == 2
    assert "runs no Python job in cluster mode" in done.stderr


def test_no_java_and_no_spark_are_errors_that_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "job.py").touch()
    no_java = submit("job.py", cwd=tmp_path, JAVA_HOME=str(tmp_path))
    assert (no_java.returncode, "Spark needs Java 17" in no_java.stderr) == (2, True)
    no_spark = submit("job.py", cwd=tmp_path, SPARK_HOME=str(tmp_path))
    assert (no_spark.returncode, "no spark-submit in SPARK_HOME" in no_spark.stderr) == (2, True)
