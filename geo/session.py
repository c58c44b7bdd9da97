"""Spark sessions: the settings delta-geo relies on, how one is obtained, and the check that a given one is fit.

A session that somebody else made (spark-submit, a notebook, Databricks) is used as it is, but for NEEDED_ALWAYS. Only one that we start gets all
our settings. `geo/spark-defaults.conf` holds SPARK_DEFAULTS for spark-submit, and a test keeps the two equal. No `_jvm`: Spark Connect has none.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from geo.errors import SetupError
from geo.jars import ensure_jars, locked_jars, refuse_other_spark, spark_here
from geo.late import has_spark, pyspark, spark_errors, spark_sql
from geo.text import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

HOW_TO_START = (
    "Start it with ./spark-submit.sh or geo.session.session(), or with --properties-file geo/spark-defaults.conf, which lies beside this "
    "package's code."
)

SPARK_DEFAULTS: Mapping[str, str] = {
    # Without both, Delta's SQL (MERGE, DESCRIBE HISTORY, generated columns) and tables by name do not work.
    "spark.sql.extensions": DELTA_EXTENSION,
    "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
    # publish_date and every TTL are UTC: two regions must agree on what day a message belongs to.
    "spark.sql.session.timeZone": "UTC",
    # 45-90 ms less a batch. It relies on what is our rule anyway: a checkpoint has one driver at a time.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Default 100. One link per topic, each with a checkpoint: fewer small files to list, still minutes to look back.
    "spark.sql.streaming.minBatchesToRetain": "20",
    # Queries appear in the metrics system (Prometheus, Dropwizard), not only in the UI.
    "spark.sql.streaming.metricsEnabled": "true",
    # Queries of one session share its cores: first-in-first-out would let one bootstrap hold up every other topic.
    "spark.scheduler.mode": "FAIR",
    # Default 0, for ever. A stop that waits longer than a minute for its batch is reported instead of hanging.
    "spark.sql.streaming.stopTimeout": "60s",
    # Default 50 tasks to read a table's state; ours keep statistics and files few.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Default false: a commit whose answer was lost on the way from an object store meets its own file, takes it for another
    # writer's, and lands a second time.
    "spark.databricks.delta.commit.idempotencyCheck.enabled": "true",
    # Default false: a page of a file that is not what was written is rows that nobody wrote, if it can still be unpacked.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    # Default 7: a minute and more for each of several requests, until a person hears that nobody answers at an endpoint. What runs
    # for long tries again by itself, later. A store that is busy (503) is asked as often as before.
    "spark.hadoop.fs.s3a.retry.limit": "4",
    # Default 0: rows are sorted by a table's partition columns before they are written, here by publish_date, which most appends
    # have one of. So many dates are written side by side instead; more are sorted as before.
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # Default true: a batch is held while it is counted and written. Packing bodies, which seldom repeat, is most of that work.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Default 10,000. Rows go to Python in blocks of so many, and at each row Spark looks how large the block is by now, which for
    # a column of maps or arrays takes as long as there are rows in it: 500,000 rows with one took 5 s, and take 0.5.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # Spark's own pattern does not cover Azure account keys, own keys of S3, SAS tokens and JAAS lines: they would show in the UI.
    "spark.redaction.regex": (
        r"(?i)secret|passw(or)?d|token|credential|access[.]?key|account[.]key|encryption[.]key|azure[.]sas|[?&]sig=|sasl[.]jaas"
    ),
    # State that does not fit the heap; transformWithState works with no other provider.
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
}

OTHERWISE: Mapping[str, Mapping[str, str]] = {
    "4.0": {
        "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    }
}
"""Settings that differ with an older Spark: the same class had another name. `spark-submit.sh` says it too."""

LOCAL_DEFAULTS: Mapping[str, str] = {
    # 200 tasks a stateful batch cost seconds on one machine (6.7 s measured). Frozen into a checkpoint at its creation.
    "spark.sql.shuffle.partitions": "2",
    # It replans shuffles at run time: only overhead with two partitions, and streams do not support it.
    "spark.sql.adaptive.enabled": "false",
    # VACUUM lists a table's folders in so many tasks, however few there are: by default 10,000, minutes on one machine.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",
    # A web server and its history for a process that mostly lives for seconds.
    "spark.ui.enabled": "false",
    "spark.sql.streaming.ui.enabled": "false",
    # The bar is drawn over what we print.
    "spark.ui.showConsoleProgress": "false",
    # An upper bound, taken only when needed. Spark's 1 GB is too little for a backfill of some hundred MB.
    "spark.driver.memory": "4g",
    # Never depends on the name or the network of a laptop, and never listens beyond this machine.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

NEEDED_ALWAYS = ("spark.databricks.delta.commit.idempotencyCheck.enabled",)
"""Settings of SPARK_DEFAULTS without which messages could double; they can be set at any time, so a given session gets them
too."""

_was_loaded = False
"""Delta was found in this process's JVM."""

# Set by whoever already made a session for this process: spark-submit, a Spark Connect client, Databricks.
_GIVEN_BY = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION")

_SETTINGS_IN = ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_SETTING_FILES = ("spark-defaults.conf", "spark-env.sh")
# Where settings may stand with which a Spark of ours would start, beside those that are here.

_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})
# Open-source Unity Catalog's session catalog wraps Delta's.
_CATALOGS = frozenset({DELTA_CATALOG, "io.unitycatalog.spark.UCSingleCatalog"})


def session(
    app_name: str = "delta-geo",
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    schemes: Collection[str] = (),
) -> SparkSession:
    """The session to work with: the one that is given, untouched, else one that we start with our settings.

    Under spark-submit, in a notebook or with any session alive, none of the arguments changes its settings. Otherwise a
    session starts on `master` (else `$MASTER`, else `local[*]`) with SPARK_DEFAULTS, on a local master LOCAL_DEFAULTS
    too, and over them `conf`. `schemes` are of the storages that it shall reach, as `Config.schemes` has them. Starts in 7 to 10 s;
    downloads the jars that are missing. Raises SetupError.
    """
    if (active := spark_sql.SparkSession.getActiveSession()) is not None:
        return active
    # A session of another thread is not active in this one, and a builder with settings would write them into it.
    if pyspark.SparkContext._active_spark_context is not None or any(name in os.environ for name in _GIVEN_BY):
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            _end_with_the_parent()
        return spark_sql.SparkSession.builder.getOrCreate()

    # Else the workers would be whatever python3 comes first on the PATH, without our dependencies.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or os.environ.get("MASTER") or "local[*]"
    settings = {
        **SPARK_DEFAULTS,
        **OTHERWISE.get(spark_here(), {}),
        "spark.jars": ",".join(map(str, ensure_jars(jars=locked_jars(schemes)))),
    }
    if master.startswith("local"):
        settings |= {**LOCAL_DEFAULTS, **_local_paths()}
    settings |= conf or {}

    builder = spark_sql.SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _children_ignore_sigterm():
        started = builder.getOrCreate()
    if master.startswith("local"):
        # Their Python is this one, and they are told where this package lies.
        _fit_workers.add(started.sparkContext.applicationId)
    return started


_fit_workers: set[str] = set()
"""Applications whose Python workers have what they need."""


def starts_without_log_store() -> bool:
    """Tells whether Spark, as `session` would start it now, has no log store of Delta's configured; told without starting it.
    False: a session is given or there, which can be asked, or a place from which Spark takes settings names one.
    """
    if any(name in os.environ for name in _GIVEN_BY) or session_is_there():
        return False
    texts = [os.environ.get(name, "") for name in _SETTINGS_IN]
    try:
        texts += [file.read_text(errors="replace") for name in _SETTING_FILES if (file := _conf_folder() / name).exists()]
    except OSError:
        return False
    return not any(word in text for text in texts for word in ("logStore", "--properties-file"))


def _conf_folder() -> Path:
    """Tells where spark-submit, by which a session of ours starts, finds settings."""
    if (folder := os.environ.get("SPARK_CONF_DIR")) is not None:
        return Path(folder)
    if (home := os.environ.get("SPARK_HOME")) is None:
        found = find_spec("pyspark")
        home = os.path.dirname(str(found.origin)) if found is not None else "."
    return Path(home, "conf")


def session_is_there() -> bool:
    """Tells whether a session is there. One of another thread is not active in this one."""
    return has_spark() and (pyspark.SparkContext._active_spark_context is not None or active_session() is not None)


def active_session() -> SparkSession | None:
    """The session of this thread; None: there is none."""
    return spark_sql.SparkSession.getActiveSession() if has_spark() else None


@contextmanager
def _children_ignore_sigterm() -> Iterator[None]:
    """Let a JVM that this thread starts meanwhile end with this process, and not before it.

    A service manager (systemd's KillMode=control-group) sends SIGTERM to all processes at once, and this one must still end what runs.
    A JVM keeps ignoring what it was started to ignore. It ends when its standard input does, so also after a SIGKILL of this process.
    Its Python workers have a handler of their own, to which nothing comes: they keep what they were started with blocked. They end when
    the JVM does.
    """
    global _ignores_are_set
    if not _ignores_are_set and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_ignore_sigterm_if_launched)
        _ignores_are_set = True
    _launching.jvm = True
    try:
        yield
    finally:
        _launching.jvm = False


_launching = threading.local()
_ignores_are_set = False


def _ignore_sigterm_if_launched() -> None:
    """Called in every fork of this process that runs Python, as pyspark's is before it becomes the JVM."""
    if getattr(_launching, "jvm", False):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def set_what_is_needed(spark: SparkSession) -> None:
    """Set NEEDED_ALWAYS in a session that somebody else made. One that does not take them is left as it is: `geo doctor` says
    so. And let the Python that Spark starts beside the driver find this package."""
    for key in NEEDED_ALWAYS:
        with suppress(spark_errors.PySparkException):
            spark.conf.set(key, SPARK_DEFAULTS[key])
    _lend_archive(spark)


def _lend_archive(spark: SparkSession) -> None:
    """Name the zip in which this package came (--py-files) to functions that Spark calls.

    Executors fetch it. But the first batch of a stateful query in Python, as that of controllers is, also calls its function
    beside the driver. That process is not told by Spark 4.2 what came by --py-files (transform_with_state_driver_worker.py:
    there is no `setup_spark_files` in it). A package that is installed is found there as elsewhere.
    """
    archive = Path(__file__).resolve().parents[1]
    if not archive.is_file() or pyspark.SparkContext._active_spark_context is None:
        return
    environment = pyspark.SparkContext._active_spark_context.environment
    there = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    if str(archive) not in there:
        environment["PYTHONPATH"] = os.pathsep.join([*there, str(archive)])


def own_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session with the settings of `spark` and these: for what is said by a setting, while other threads commit in `spark`."""
    own = spark.newSession()
    known = own.conf.getAll
    for key, value in {**spark.conf.getAll, **settings}.items():
        if known.get(key) != value:
            with suppress(spark_errors.PySparkException):  # of the application, so it is the same there
                own.conf.set(key, value)
    return own


def refuse_connect(spark: SparkSession) -> None:
    """Raises SetupError if this is a session of Spark Connect, by which tables are read and not written."""
    if any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(spark).__mro__):
        raise SetupError(
            "this is a Spark Connect session: by it delta-geo looks at tables (verify, topics, peek) and writes none. What a process "
            "began runs on in the server when that process is gone, so whoever takes over from it could not know when nothing of it "
            "lands any more. Run it with spark-submit, as a job on a dedicated (single user) cluster, or in a notebook attached to one; "
            "not on serverless or a shared cluster."
        )


def require_delta(spark: SparkSession) -> None:
    """Returns if the session can read and write Delta tables in UTC, and its Python workers find this package. Raises SetupError with every finding
    if not.

    Reads settings, and once in a session that somebody else started asks one worker, which takes about a second. Databricks has Delta built in and
    does not show it in these settings.
    """
    refuse_connect(spark)
    refuse_other_spark(".".join(spark.version.split(".")[:2]))
    findings = []
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:
        extensions = spark.conf.get("spark.sql.extensions", None) or ""
        if DELTA_EXTENSION not in [name.strip() for name in extensions.split(",")]:
            findings.append(_finding("spark.sql.extensions", extensions, DELTA_EXTENSION))
        catalog = spark.conf.get("spark.sql.catalog.spark_catalog", None) or ""
        if catalog not in _CATALOGS:
            findings.append(_finding("spark.sql.catalog.spark_catalog", catalog, DELTA_CATALOG))
        if not findings and not _delta_is_loaded(spark):
            findings.append("the settings name Delta, but its jars are not there: add `--jars $(python -m geo.jars)`")
    zone = spark.conf.get("spark.sql.session.timeZone")  # unset, it is the JVM's own zone
    if zone not in _UTC:
        findings.append(_finding("spark.sql.session.timeZone", zone, "UTC"))
    if findings:
        raise SetupError(
            "this Spark session cannot run delta-geo:\n"
            + "\n".join(f"  - {finding}" for finding in findings)
            + f"\n{HOW_TO_START} The first two settings take effect only in a new session."
        )
    _refuse_bare_workers(spark)


def _refuse_bare_workers(spark: SparkSession) -> None:
    """Raises SetupError if a Python worker of the session lacks this package, or what it needs there. From a zip (--py-files) workers have it."""
    context = spark.sparkContext
    if context.applicationId in _fit_workers or not Path(__file__).is_file():
        return

    def lacking(
        names: Iterable[str],
    ) -> Iterator[str]:  # in a function, so it is sent as what it does, not as a name of this package
        import sys
        from importlib.util import find_spec

        yield from (f"{name} (in {sys.executable})" for name in names if find_spec(name) is None)

    try:
        found = context.parallelize(["geo", "pyarrow"], 1).mapPartitions(lacking).collect()
    except Exception as error:  # classic Spark lets what a task raises through as a bare Py4JJavaError
        found = [first_line(error)]
    if found:
        raise SetupError(
            f"the Python of this session's workers cannot run delta-geo: {', '.join(found)}. Let PYSPARK_PYTHON name this program's own ({sys.executable}) before the session "
            "starts, or on a cluster `pip install delta-geo` in the workers' Python, or send the code by --py-files (./spark-submit.sh does)."
        )
    _fit_workers.add(context.applicationId)


def _finding(key: str, found: str | None, wanted: str) -> str:
    return f"{key} is {repr(found) if found else 'not set'}, must be {wanted!r}"


def _delta_is_loaded(spark: SparkSession) -> bool:
    """Spark only warns when the extension's class is missing; asking for the format, without a path, tells. Asked once a process:
    a JVM does not lose its jars."""
    global _was_loaded
    try:
        if not _was_loaded:
            spark.read.format("delta").load()
    except Exception as error:  # classic Spark lets this one through as a bare Py4JJavaError, Connect does not
        if "DATA_SOURCE_NOT_FOUND" in str(error):
            return False  # with Delta, its complaint is that there is no path
    _was_loaded = True
    return True


def _end_with_the_parent() -> None:
    """Pass the end of spark-submit on to this process, as SIGTERM, within a second.

    A SIGTERM meant for the job ends spark-submit's JVM, which leaves its Python child running. A job between two calls into Spark would live on as
    an orphan beside its successor.
    """
    name, parent = "geo-end-with-spark-submit", os.getppid()
    if any(thread.name == name for thread in threading.enumerate()):
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name=name, daemon=True).start()


def _local_paths() -> dict[str, str]:
    """Settings that name where this package lies: its logging, and itself for the Python workers."""
    here = Path(__file__).resolve().parent
    return {
        # `default` options come before a user's own spark.driver.extraJavaOptions instead of being replaced by them.
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={(here / 'log4j2.properties').as_uri()}",
        # Workers do not inherit sys.path, and the working folder need not be the checkout.
        "spark.executorEnv.PYTHONPATH": str(here.parent),
    }
