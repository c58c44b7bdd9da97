"""`python -m tests.mutants [FILE …]`: mutmut changes the pure files of geo, one place at a time, and the tests that need no Spark
are asked.

Prints of each file how many changes they caught. The share of all must not fall below FLOOR. What survived is in the folder that
is named at the end, by `mutmut show NAME` there. All files take half an hour on two cores.

Run it alone: when a change has had its time mutmut sends a signal to the number of its process, which may be another process's by
then.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.planted import copy_checkout
from tests.test_structure import PURE, ROOT

FLOOR = 0.87
"""The least share that must be caught: 7,899 of 9,014 were (87.6 %) when it was set."""

_COPIED = ("geo", "tests", "conf", "notebooks", "docs", "README.md", "CHANGELOG.md", "run")
_LEFT_OUT = {"geo/errors.py", "geo/crash.py"}
"""Texts and names only."""

_NOT_ASKED = (
    "tests/model",
    *sorted(f"tests/cli/{path.name}" for path in (ROOT / "tests/cli").glob("test_*.py") if path.name != "test_explain.py"),
    "tests/test_packaging.py",
    "tests/test_spark_submit.py",
    "tests/test_form.py",
    "tests/test_structure.py",
    "tests/test_notebooks.py",
    "tests/test_trips.py",
)
"""They cover everything, seconds a change, or look at the files themselves."""

_TOO_LONG = "tests/subscription/acks/test_record.py::test_a_state_too_large_for_one_record_is_refused_before_it_is_sent_and_can_be_split_or_kept"
"""A minute with the calls that mutmut counts."""


_SURVIVED = {0, 5, 33, None}
"""What mutmut says of a change that no test caught, or that no test comes to."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="such as geo/replication/rule.py; all pure files by default")
    args = parser.parse_args()
    files = args.files or [name for name in PURE if name.startswith("geo/") and name not in _LEFT_OUT]
    folder = Path(tempfile.mkdtemp(prefix="geo-mutants-"))
    copy_checkout(folder, _COPIED)
    settings = {
        "source_paths": ["geo"],
        "only_mutate": files,
        # A change that never ends is what takes long: each may use (the time of its tests + 3 s) x 3.
        "timeout_constant": 3.0,
        "timeout_multiplier": 3.0,
        "also_copy": [name for name in _COPIED if name not in ("geo", "tests")],
        "pytest_add_cli_args": [
            "-m",
            "not spark",
            "-p",
            "no:cacheprovider",
            *(f"--ignore={name}" for name in _NOT_ASKED),
            f"--deselect={_TOO_LONG}",
        ],
        "pytest_add_cli_args_test_selection": ["tests"],
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + "\n[tool.mutmut]\n" + "\n".join(lines) + "\n")
    with open(folder / "mutmut.log", "wb") as log:
        done = subprocess.run([sys.executable, "-m", "mutmut", "run"], cwd=folder, stdout=log, stderr=log)
    if done.returncode:
        raise SystemExit(f"mutmut ended with {done.returncode}, see {folder}/mutmut.log")
    killed, made = 0, 0
    for name in files:
        codes = json.loads((folder / "mutants" / f"{name}.meta").read_text())["exit_code_by_key"].values()
        caught = sum(code not in _SURVIVED for code in codes)
        print(f"{caught:5} of {len(codes):5}  {name}", flush=True)
        killed, made = killed + caught, made + len(codes)
    share = killed / max(1, made)
    print(f"{killed} of {made} were caught, {share:.1%} (at least {FLOOR:.0%} must be); see {folder}")
    return 0 if args.files or share >= FLOOR else 1


if __name__ == "__main__":
    sys.exit(main())
