"""`python -m tests.broken [NAME …] [--only disk|s3]`: each set-up on a local disk and on an S3 API of this machine, some seconds each. Prints what was
shown of each; exit code 1 with what is not so.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from geo.journal.events import flush_all
from tests.broken.at_rest import at_rest
from tests.broken.check import EVENT, Shown, check
from tests.broken.place import Place, without_spark
from tests.broken.set_ups import DOCTOR, SET_UPS, STATUS
from tests.kafka_broker import free_ports
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run broken", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of: {', '.join(one.name for one in SET_UPS)}; all, if none is given"
    )
    parser.add_argument("--only", choices=("disk", "s3"), help="on one of both places")
    does = "instead: two regions with running brokers, into which nothing comes for so long and then a message; who asks twice a minute is told of nothing"
    parser.add_argument("--at-rest", type=float, metavar="MINUTES", help=does)
    args = parser.parse_args()
    os.environ.update(TZ="UTC", GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
    time.tzset()
    chosen = [one for one in SET_UPS if not args.names or one.name in args.names]
    shown: list[tuple[str, str, float, Shown]] = []
    with tempfile.TemporaryDirectory(prefix="geo-broken-") as folder, without_spark():
        if args.at_rest is not None:
            print(f"{at_rest(Place(Path(folder), None), args.at_rest)} times asked, and told of nothing", flush=True)
            return 0
        s3 = None if args.only == "disk" else S3(free_ports(1)[0], Path(folder, "s3.log"))
        try:
            for place in [name for name in ("disk", "s3") if args.only in (None, name)]:
                for number, one in enumerate(chosen):
                    below, began = Path(folder, f"{place}-{number}"), time.monotonic()
                    below.mkdir()
                    try:
                        found = check(one, Place(below, s3 if place == "s3" else None))
                    except AssertionError:
                        found = Shown(lacks=[traceback.format_exc(limit=-2)])
                    flush_all()
                    shown.append((one.name, place, time.monotonic() - began, found))
                    print(line_of(*shown[-1]), *found.lacks, sep="\n    ", flush=True)
        finally:
            if s3 is not None:
                s3.close()
    print(HEAD, *(line_of(*one) for one in shown), sep="\n")
    return 1 if any(found.lacks for *_, found in shown) else 0


HEAD = f"\n{'SET-UP':21} {'PLACE':5} {'S':>3}  {'HEALTH':11} {'CODE':16} {'SINCE':>7}  STATUS DOCTOR EVENT  VERB  AFTER"


def line_of(name: str, place: str, took_s: float, found: Shown) -> str:
    """A row of the table. `SINCE`: how far that is from when it happened, at most."""
    told = [_cell(found.told.get(who, False)) for who in (STATUS, DOCTOR, EVENT)]
    cells = f"{told[0]:6} {told[1]:6} {told[2]:6} {_cell(bool(found.done)):5} {_cell(found.is_mended)}"
    return f"{name:21} {place:5} {took_s:3.0f}  {found.health:11} {found.code:16} {found.apart_s:+5.0f} s  {cells}  {found.done[:60]}"


def _cell(is_so: bool) -> str:
    return "yes" if is_so else "NO"


if __name__ == "__main__":
    sys.exit(main())
