"""`python -m tests.planted [WORD …]`: small faults, planted one at a time in a copy of this checkout. Prints which test catches
each.

The faults are beside the test that catches them: those of `tests/streams/test_lease.py` in `test_lease.faults`. Of each: what is wrong then; the
file, and whether the test needs Spark or hangs; the text that is there once, behind `-`, and what is put in its place, behind `+`, nothing where
nothing is. Behind `<` are the tests that are asked, in this order, until one fails, each perhaps with an expression for `-k`; `.` is the one beside
it, which alone is asked where none is named.

Which faults are there: of files that are not pure, any. Of a pure file those that `./run mutants` does not make, which changes every
operator, bound, operand and argument of its functions by itself: a guard, a clause or a statement that is gone, a constant, another rule in
the place of one, and what is caught by tests alone that need Spark or that it does not ask (`tests/model`).

WORDs choose the faults of which the file, the test or the description has one of them; `--no-spark` leaves out those that need Spark. Exit code 1 if one survives.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
_COPIED = ("geo", "tests", "conf", "notebooks", "pyproject.toml")
_LIMIT_S = 400


@dataclass(frozen=True, slots=True)
class Fault:
    """In `file` the text `right`, which is there once, becomes `wrong`. `asked`: test files, each perhaps with an expression for
    `-k`."""

    what: str
    file: str
    right: str
    wrong: str
    asked: tuple[str, ...]
    spark: bool
    hangs: bool
    """A test that does not end within _LIMIT_S has caught it."""

    @classmethod
    def parse(cls, block: str, test: str) -> Fault:
        """Of its lines in the file beside `test`."""
        what, place, *texts = block.splitlines()
        found = re.fullmatch(r"(\S+)(?: < (.+?))?(?:  \((spark)?(?:, )?(hangs)?\))?", place)
        if found is None or any(line[:2] not in ("- ", "+ ", "-", "+") for line in texts):
            raise SystemExit(f"{test}: {what}: not as the others are")
        right, wrong = ("\n".join(line[2:] for line in texts if line[0] == sign) for sign in "-+")
        asked = tuple(re.sub(r"^\.", test, one) for one in (found[2] or ".").split(", "))
        return cls(what, found[1], right, wrong, asked, found[3] is not None, found[4] is not None)


def _faults() -> Iterator[Fault]:
    for path in sorted((HERE / "tests").rglob("*.faults")):
        test = path.with_suffix(".py").relative_to(HERE / "tests").as_posix()
        for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
            yield Fault.parse(block, test)


FAULTS = tuple(_faults())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--no-spark", action="store_true", help="only what needs no Spark")
    args = parser.parse_args()
    chosen = [
        f for f in FAULTS if not args.words or any(word in text for word in args.words for text in (f.file, f.what, *f.asked))
    ]
    survived = 0
    with tempfile.TemporaryDirectory(prefix="geo-planted-") as folder:
        copy_checkout(Path(folder), _COPIED)
        for fault in chosen:
            if fault.spark and args.no_spark:
                continue
            began = time.monotonic()
            caught = _caught_by(Path(folder), fault)
            survived += caught is None
            print(f"{caught or 'SURVIVED'}\n    {fault.file}: {fault.what} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{survived} survived" if survived else "all were caught")
    return 1 if survived else 0


def copy_checkout(folder: Path, names: Iterable[str]) -> None:
    """Copy these files and folders of the repository, to be changed."""
    for name in names:
        copy = shutil.copytree if (HERE / name).is_dir() else shutil.copy
        copy(HERE / name, folder / name)


def _caught_by(checkout: Path, fault: Fault) -> str | None:
    """The first test that fails with the fault in the checkout, or the file of one that does not end. The checkout is whole again
    afterwards."""
    file = checkout / fault.file
    whole = file.read_text(encoding="utf-8")
    if whole.count(fault.right) != 1:
        raise SystemExit(f"{fault.file}: {fault.right!r} is there {whole.count(fault.right)} times")
    file.write_text(whole.replace(fault.right, fault.wrong), encoding="utf-8")
    try:
        for asked in fault.asked:
            path, *more = asked.split(" ", 2)
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"tests/{path}", *more]
            try:
                done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=_LIMIT_S)
            except subprocess.TimeoutExpired:
                if not fault.hangs:
                    raise SystemExit(f"{' '.join(command)} does not end within {_LIMIT_S} s") from None
                return f"tests/{path} (does not end)"
            if found := re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE):
                return found[1]
            if done.returncode not in (0, 1):
                raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return None
    finally:
        file.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
