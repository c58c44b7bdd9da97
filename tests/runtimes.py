"""The demo on the Sparks and Pythons that docs/runtimes.md names, each in an environment of its own: `./run runtimes`.

The demo publishes, replicates both ways, is killed in the middle, goes on, and compares both logs. A Python that is not on the PATH is said to be so.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from geo.jars import SPARKS

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = "3.10", "3.11", "3.12", "3.13"
DEMO_S = 900
"""Some two minutes on two cores; this only bounds a hang."""


def environment(folder: Path, python: str, spark: str) -> Path | None:
    """The Python of an environment with this package and what the demo takes, made where it is not there; None without such a Python."""
    there = folder / f"python-{python}-spark-{spark}"
    if not (there / "done").exists():
        command = shutil.which(f"python{python}")
        if command is None or subprocess.run([command, "--version"], capture_output=True).returncode != 0:
            return None
        subprocess.run([command, "-m", "venv", "--clear", str(there)], check=True)
        install = [str(there / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-e", f"{ROOT}[demo,fold,s3]"], check=True)
        # What is newest is pinned by the extra; an older one replaces it, as a runtime brings it.
        subprocess.run([*install, f"pyspark=={spark}.*"], check=True)
        (there / "done").touch()
    return there / "bin/python"


def shown(python: Path) -> tuple[str, str]:
    """How the demo went, and which Spark that was."""
    version = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__version__)"], capture_output=True, text=True, check=True
    )
    begin = time.monotonic()
    done = subprocess.run([python, "-m", "geo", "demo"], capture_output=True, text=True, timeout=DEMO_S)
    took = f"{time.monotonic() - begin:.0f} s"
    last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    return (
        "clean" if done.returncode == 0 else f"exit code {done.returncode}: {''.join(last)}"
    ) + f", {took}", version.stdout.strip()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run runtimes", description=__doc__)
    parser.add_argument("--spark", action="append", choices=SPARKS, help="only this one")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this one")
    parser.add_argument("--folder", type=Path, default=ROOT / "out/runtimes", help="where the environments are")
    args = parser.parse_args(arguments)
    ended_well = True
    for spark in args.spark or SPARKS:
        for python in args.python or PYTHONS:
            found = environment(args.folder, python, spark)
            how, exact = ("not tried: there is no such Python here", spark) if found is None else shown(found)
            ended_well = ended_well and (found is None or how.startswith("clean"))
            print(f"Python {python}, Spark {exact}: {how}", flush=True)
    return 0 if ended_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
