"""geo/spark-defaults.conf and geo.session.SPARK_DEFAULTS are one list; and what a given session gets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from geo.session import LOCAL_DEFAULTS, NEEDED_ALWAYS, SPARK_DEFAULTS, own_session
from tests.processes import JAVA, LEAST, environment

ROOT = Path(__file__).resolve().parent.parent


def properties(text: str) -> list[tuple[str, str]]:
    """The settings of a Java properties file, as far as spark-submit files go: no continued lines, no escapes."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(key, value) for key, value in pairs]


def test_spark_submit_gets_exactly_the_settings_of_our_own_sessions() -> None:
    settings = properties((ROOT / "geo" / "spark-defaults.conf").read_text(encoding="utf-8"))
    assert dict(settings) == dict(SPARK_DEFAULTS)
    assert len(settings) == len(SPARK_DEFAULTS), "a setting stands twice: Spark takes the last one"


def test_processes_that_tests_start_generate_no_code_and_may_read_the_classes_that_were_kept() -> None:
    given = environment()
    generated = {key: value for key, value in LEAST.items() if key.startswith("spark.sql.codegen.")}
    assert len(generated) == 2
    assert all(f"--conf {key}={value} " in given["PYSPARK_SUBMIT_ARGS"] for key, value in generated.items())
    assert "SPARK_CONF_DIR" not in given, (
        "another class path than that of tests/shared_classes.py, and Java keeps away from the file"
    )


def test_no_value_means_something_else_in_a_properties_file() -> None:
    # Java would read a backslash as an escape; the file and the constant could then look equal and not be.
    assert not [value for value in SPARK_DEFAULTS.values() if "\\" in value]


def test_what_a_given_session_gets_too_is_one_of_our_settings() -> None:
    assert "spark.databricks.delta.commit.idempotencyCheck.enabled" in NEEDED_ALWAYS
    assert set(NEEDED_ALWAYS) <= SPARK_DEFAULTS.keys()


@pytest.mark.parametrize(
    ("variable", "text", "is_known"),
    [
        ("SPARK_SUBMIT_OPTS", "-Xss4m", True),
        ("SPARK_SUBMIT_OPTS", "-Dspark.delta.logStore.file.impl=Own", False),
        ("PYSPARK_SUBMIT_ARGS", "--conf spark.delta.logStore.class=Own pyspark-shell", False),
        ("PYSPARK_SUBMIT_ARGS", "--properties-file elsewhere.conf pyspark-shell", False),
        ("SPARK_CONF_DIR", "spark.delta.logStore.file.impl Own", False),
        ("SPARK_CONF_DIR", "spark.driver.memory 2g", True),
        ("SPARK_HOME", "spark.delta.logStore.class Own", False),
        ("PYSPARK_GATEWAY_PORT", "4040", False),
        ("SPARK_REMOTE", "sc://somewhere", False),
    ],
)
def test_that_no_log_store_is_configured_is_known_before_spark_starts_where_no_place_of_its_settings_names_one(
    variable: str, text: str, is_known: bool, tmp_path: Path
) -> None:
    folder = {"SPARK_CONF_DIR": tmp_path, "SPARK_HOME": tmp_path / "conf"}.get(variable)
    if folder is not None:
        folder.mkdir(exist_ok=True)
        (folder / "spark-defaults.conf").write_text(text)
        text = str(tmp_path)
    code = "from geo.session import starts_without_log_store as it\nprint(it())"  # this process may have a session
    given = {"PATH": os.environ["PATH"], variable: text}
    told = subprocess.run([sys.executable, "-c", code], env=given, cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == f"{is_known}\n"


@pytest.mark.spark
def test_a_session_of_its_own_is_like_the_other_and_changes_nothing_in_it(spark: SparkSession) -> None:
    key = "spark.databricks.delta.commitInfo.userMetadata"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    spark.conf.set("fs.s3a.bucket.eu.access.key", "a key set while it ran")
    try:
        own = own_session(spark, {key: "said"})
        assert own.conf.get(key) == "said"
        assert spark.conf.get(key, None) is None
        mine, theirs = own.conf.getAll, spark.conf.getAll
        assert {name: value for name, value in mine.items() if theirs.get(name) != value} == {key: "said"}
        assert theirs.keys() <= mine.keys()
        assert SparkSession.getActiveSession() is not own
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("fs.s3a.bucket.eu.access.key")


def test_settings_of_a_single_machine_never_reach_a_cluster() -> None:
    assert not SPARK_DEFAULTS.keys() & LOCAL_DEFAULTS.keys()


@pytest.mark.parametrize(
    ("setting", "secret"),
    [
        ("fs.azure.account.key.acct.dfs.core.windows.net=c2VjcmV0", True),
        ("spark.hadoop.fs.azure.sas.container.acct.blob.core.windows.net=sv=2024", True),
        ("some.url=https://acct.blob/x?sv=2024&sig=abc", True),
        ("fs.s3a.bucket.eu.secret.key=x", True),
        ("fs.s3a.access.key=x", True),
        ("kafka.sasl.jaas.config=x", True),
        ("kafka.ssl.keystore.password=x", True),
        ("fs.s3a.bucket.b.encryption.key=x", True),
        ("fs.azure.account.auth.type=SharedKey", False),
        ("spark.sql.session.timeZone=UTC", False),
        ("spark.app.name=disaster recovery", False),
    ],
)
def test_credentials_are_hidden_and_ordinary_settings_are_not(setting: str, secret: bool) -> None:
    # Spark hides a setting when the pattern is found in its key or in its value.
    key, _, value = setting.partition("=")
    pattern = re.compile(SPARK_DEFAULTS["spark.redaction.regex"])
    assert bool(pattern.search(key) or pattern.search(value)) is secret


OWN_SESSION = """
from pyspark.sql import SparkSession
from geo.errors import SetupError
from geo.jars import ensure_jars
from geo.session import SPARK_DEFAULTS, require_delta

builder = SparkSession.builder.master("local[1]").config("spark.jars", ",".join(map(str, ensure_jars()))).config("spark.ui.enabled", "false")
for key, value in SPARK_DEFAULTS.items():
    builder = builder.config(key, value)
try:
    require_delta(builder.getOrCreate())
except SetupError as error:
    print(error)
"""


@pytest.mark.spark
@pytest.mark.parametrize("lacks", [True, False], ids=["another Python", "this one"])
def test_a_session_of_ones_own_whose_workers_lack_the_package_is_told_so_in_one_line(tmp_path: Path, lacks: bool) -> None:
    bare = os.path.realpath(sys.executable)  # behind this environment, without what is installed in it
    given = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHONPATH", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", OWN_SESSION],
        cwd=tmp_path,
        env={**given, "JDK_JAVA_OPTIONS": JAVA, "PYSPARK_PYTHON": bare if lacks else sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert len(said) == lacks
    if lacks:
        assert f"workers cannot run delta-geo: geo (in {bare})" in said[0]
        assert f"Let PYSPARK_PYTHON name this program's own ({sys.executable})" in said[0]
