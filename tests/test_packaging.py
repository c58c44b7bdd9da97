"""What an installation brings along, and what it offers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

from geo.cli.main import make_parser
from geo.jars import SPARKS
from geo.session import NEEDED_ALWAYS, SPARK_DEFAULTS
from tests.runtimes import PYTHONS

ROOT = Path(__file__).resolve().parents[1]

WHAT_RUNS = ("completion", "fold", "kafka", "s3", "spark")
"""What an environment may lack, by its extra."""


def test_an_installation_replaces_no_spark_of_a_runtime_unless_asked_to() -> None:
    required = distribution("delta-geo").requires or []
    asking = {line.partition("extra == ")[2].strip("'\"") for line in required if line.startswith(("pyspark", "delta-spark"))}
    assert asking == {"spark", "all", "demo", "notebooks", "test"}, "'': everybody; fold and kafka are for runtimes too"


def test_one_extra_brings_what_runs_everything() -> None:
    required = [line.partition("; extra == ") for line in distribution("delta-geo").requires or []]
    of_each = {extra: {one for one, _, said in required if said.strip("'\"") == extra} for extra in ("all", *WHAT_RUNS)}
    assert all(of_each[extra] for extra in WHAT_RUNS)
    assert of_each["all"] >= set().union(*(of_each[extra] for extra in WHAT_RUNS))


def _wheel(folder: Path) -> Path:
    """The wheel, installed into a folder."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT], check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "site", wheel], check=True, timeout=120)
    return folder / "site"


def _zip(folder: Path) -> Path:
    """The code as `--py-files` takes it."""
    return Path(shutil.make_archive(str(folder / "geo"), "zip", ROOT, "geo"))


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda folder: ROOT, _wheel, _zip], ids=["checkout", "wheel", "zip"])
def test_folders_of_a_users_own_hide_nothing_of_the_package(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    place, own = make(tmp_path), tmp_path / "own"
    for name in ("schemas", "jobs", "config", "tests"):
        (own / name).mkdir(parents=True)
        (own / name / "__init__.py").write_text("raise RuntimeError('of the user')\n")
    (own / "geo.yaml").write_text("version: 1\nclusters: {eu: {root: eu}}\n")
    # As a job of the user's, beside whose file they are.
    (own / "job.py").write_text(
        "import sys\nimport geo.jobs.replicate\nfrom geo.cli.main import main\nprint(geo.__file__)\nsys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "job.py", "topics", "--config", "geo.yaml"], cwd=own, env={**os.environ, "PYTHONPATH": str(place)},
                          capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{place}/geo/")


def test_the_page_of_runtimes_and_the_first_page_name_what_this_program_takes() -> None:
    pages = [(ROOT / name).read_text() for name in ("docs/runtimes.md", "README.md")]
    *most, last = SPARKS
    assert f"| | {' | '.join(f'Spark {one}' for one in reversed(SPARKS))} |" in pages[0]
    assert f"Spark {', '.join(most)} or {last}" in pages[1]
    least = min(PYTHONS, key=lambda one: tuple(map(int, one.split("."))))
    assert f"Python {least} or newer" in pages[1]
    assert f'requires-python = ">={least}"' in (ROOT / "pyproject.toml").read_text()
    assert all(f"| {one} |" in pages[0] for one in PYTHONS)


def test_every_job_has_an_entry_point() -> None:
    scripts = {point.name: point for point in distribution("delta-geo").entry_points if point.group == "console_scripts"}
    jobs = {path.stem for path in (ROOT / "geo/jobs").glob("*.py")} - {"__init__"}
    assert scripts.keys() == {"geo", *(f"geo-{job}" for job in jobs)}
    for job in jobs:
        assert scripts[f"geo-{job}"].load() is import_module(f"geo.jobs.{job}").main


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "code", "printed"),
    [("version: 1\nclusters: {eu: {root: eu}}\n", 0, "returned"), ("version: 1\n", 2, "")],
    ids=["what it was asked for", "what cannot be"],
)
def test_a_job_ends_its_process_with_an_exit_code_and_returns_without_one(
    tmp_path: Path, config: str, code: int, printed: str
) -> None:
    """A runtime that calls the entry point of a wheel looks at what it raises, not at what it returns."""
    (tmp_path / "geo.yaml").write_text(config)
    (tmp_path / "eu").mkdir()
    call = [sys.executable, "-c", "from geo.jobs.subscriptions import main; main(); print('returned')"]
    done = subprocess.run(
        [*call, "list", "--engine", "native", "--config", "geo.yaml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (code, [printed] if printed else []), done.stderr


def test_the_jobs_of_the_bundle_are_as_databricks_publishes_them_and_call_verbs_as_they_are() -> None:
    from databricks.bundles.jobs import Job  # a tenth of a second

    text = (ROOT / "conf/databricks/databricks.yml").read_text()
    bundle = yaml.safe_load(text)
    declared = bundle["variables"].keys()
    assert set(re.findall(r"\$\{var\.(\w+)", text)) == declared, "each is used, and nothing else is"
    given = {name for name, said in bundle["variables"].items() if "default" in said}
    for target in bundle["targets"].values():
        assert declared - given - target["variables"].keys() == {"config", "folder", "spark_version", "node_type_id"}, (
            "what a command line gives"
        )
    scripts = {point.name for point in distribution("delta-geo").entry_points}
    for said_of_job in bundle["resources"]["jobs"].values():
        job: Any = Job.from_dict(said_of_job).as_dict()  # raises ValueError for a field or value that is none
        (task,), (compute,) = job["tasks"], job["job_clusters"]
        wheel = task["python_wheel_task"]
        assert (wheel["package_name"], task["job_cluster_key"]) == ("delta-geo", compute["job_cluster_key"])
        assert wheel["entry_point"] in scripts
        verb = wheel["entry_point"].removeprefix("geo-")
        values = [value.replace("{{job.parameters.max_bytes_per_second}}", "1") for value in wheel["parameters"]]
        make_parser(verb).parse_args([verb, *values])  # exits if it does not know one
        said = compute["new_cluster"]["spark_conf"]
        assert said == {key: SPARK_DEFAULTS[key] for key in said}
        assert set(NEEDED_ALWAYS) <= said.keys()
        assert said["spark.sql.session.timeZone"] == "UTC"
