#!/usr/bin/env bash
# Starts a job with spark-submit, on this machine or on a cluster, with our code, settings and jars: Delta's, and those that reach the
# storages of the job's --config (or $GEO_CONFIG, or geo.yaml), if it is a file here.
#
#   ./spark-submit.sh [SPARK-SUBMIT OPTION ...] JOB.py [--] [ARGUMENT ...]
#   ./spark-submit.sh --conf spark.driver.memory=8g jobs/replicate.py --config geo.yaml
#
# Environment: SPARK_HOME (default: the pyspark of .venv), MASTER (local[*]), DEPLOY_MODE (client), PYSPARK_PYTHON,
# GEO_JARS, GEO_VERBOSE=1 (print what is started). Options on the command line win over all of it.
# It ends as spark-submit itself, so signals and the exit code are the job's.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
die() { echo "spark-submit.sh: $*" >&2; exit 2; }

# --- The command line: options up to the first word that is none, that word is the job, the rest is the job's own.
options=() jars='' py_files=''
master=${MASTER:-local[*]} deploy_mode=${DEPLOY_MODE:-client}
while [[ ${1:-} == -* ]]; do
    case $1 in
        -h | --help) sed -n '2,10s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        --) shift; break ;;
        --verbose | -v | --supervise | --load-spark-defaults) options+=("$1"); shift; continue ;;
        --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    [[ $# -ge 2 ]] || die "the option $1 needs a value."
    case $1 in
        --master) master=$2 ;;
        --deploy-mode) deploy_mode=$2 ;;
        --jars) jars=,$2 ;; # added to ours: spark-submit itself would let the last one win
        --py-files) py_files=,$2 ;;
        *) options+=("$1" "$2") ;;
    esac
    shift 2
done
[[ $# -ge 1 ]] || die "no job given. Usage: ./spark-submit.sh [SPARK-SUBMIT OPTION ...] JOB.py [ARGUMENT ...]"
job=$1
shift
[[ $deploy_mode != cluster || $master != spark://* ]] ||
    die "a standalone master runs no Python job in cluster mode (Spark refuses it). Leave DEPLOY_MODE out, and start this on a host of the cluster."
[[ ${1:-} != -- ]] || shift
if [[ $job != *://* && ! -f $job ]]; then
    [[ -f $root/geo/$job || -f $root/$job ]] || die "there is no job file $job, neither here nor in $root. Ours are in geo/jobs, named jobs/JOB.py."
    if [[ -f $root/geo/$job ]]; then job=$root/geo/$job; else job=$root/$job; fi
fi

# --- Python, Java and Spark.
python=$root/.venv/bin/python
[[ -x $python ]] || python=${PYSPARK_DRIVER_PYTHON:-$(command -v python3)} || die "no python3 found. Run ./run setup first."
if [[ -n ${JAVA_HOME:-} ]]; then
    [[ -x $JAVA_HOME/bin/java ]] || die "no Java: JAVA_HOME=$JAVA_HOME has no bin/java. Spark needs Java 17 or newer."
else
    command -v java >/dev/null || die "no Java on the PATH and JAVA_HOME is not set. Spark needs Java 17 or newer."
fi
if [[ -z ${SPARK_HOME:-} ]]; then
    SPARK_HOME=$("$python" -c 'from importlib.util import find_spec; print(find_spec("pyspark").submodule_search_locations[0])' \
        2>/dev/null) || die "no Spark: SPARK_HOME is not set and $python has no pyspark. Run ./run setup, or set SPARK_HOME."
    # A checkout has no logging configuration of its own; a cluster has, and it is left alone.
    if [[ $master == local* && -z ${SPARK_CONF_DIR:-} ]]; then
        options=(--conf "spark.driver.defaultJavaOptions=-Dlog4j2.configurationFile=file://${root// /%20}/geo/log4j2.properties"
            ${options[@]+"${options[@]}"})
    fi
fi
export SPARK_HOME
[[ -x $SPARK_HOME/bin/spark-submit ]] || die "no spark-submit in SPARK_HOME=$SPARK_HOME/bin."
# The driver of client mode runs here, so do the workers of a local master. Elsewhere this path would mean nothing.
if [[ -z ${PYSPARK_PYTHON:-} ]]; then
    [[ $deploy_mode != client ]] || export PYSPARK_DRIVER_PYTHON=${PYSPARK_DRIVER_PYTHON:-$python}
    [[ $master != local* ]] || export PYSPARK_PYTHON=$python
fi

# --- Our code as a zip, named by its content: equal sources give the same file, and a running job's is never rewritten.
dist=$root/dist
{ mkdir -p "$dist" && [[ -w $dist ]]; } 2>/dev/null || dist=$(mktemp -d)
code=$("$python" - "$root" "$dist" <<'PYTHON'
import hashlib, io, os, sys, tempfile, zipfile
from pathlib import Path

root, dist = map(Path, sys.argv[1:])
content = io.BytesIO()
with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
    for path in sorted((root / "geo").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
target = dist / f"delta-geo-{hashlib.sha256(content.getvalue()).hexdigest()[:12]}.zip"
if not target.exists():
    handle, scratch = tempfile.mkstemp(dir=dist)
    with open(handle, "wb") as file:
        file.write(content.getvalue())
    os.chmod(scratch, 0o644)
    os.replace(scratch, target)
print(target)
PYTHON
) || die "could not pack geo of $root into $dist."

# --- Jars: Delta's, and those that reach the storages of the job's configuration, which is found as the job finds it.
config=() before=''
[[ ! -f ${GEO_CONFIG:-geo.yaml} ]] || config=(--config "${GEO_CONFIG:-geo.yaml}")
for word in "$@"; do
    case $word in --config=*) word=${word#--config=} before=--config ;; esac
    [[ $before != --config || ! -f $word ]] || config=(--config "$word")
    before=$word
done
needed=$(PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} "$python" -m geo.jars ${config[@]+"${config[@]}"}) || exit $?

# As OTHERWISE in geo/session.py has it.
[[ $needed != *delta-spark_4.0_* ]] ||
    options=(--conf "spark.sql.streaming.checkpointFileManagerClass=org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
        ${options[@]+"${options[@]}"})

# --load-spark-defaults: a properties file alone would make Spark ignore the cluster's own conf/spark-defaults.conf.
set -- "$SPARK_HOME/bin/spark-submit" --master "$master" --deploy-mode "$deploy_mode" \
    --properties-file "$root/geo/spark-defaults.conf" --load-spark-defaults \
    --jars "$needed$jars" --py-files "$code$py_files" ${options[@]+"${options[@]}"} "$job" "$@"
[[ -z ${GEO_VERBOSE:-} ]] || { printf 'spark-submit.sh: SPARK_HOME=%s\nspark-submit.sh: exec' "$SPARK_HOME" >&2; printf ' %q' "$@" >&2; echo >&2; }
exec "$@"
