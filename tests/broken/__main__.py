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
from tests.broken.check import check
from tests.broken.place import Place, without_spark
from tests.broken.screens import SCREENS
from tests.broken.set_ups import SET_UPS
from tests.kafka_broker import free_ports
from tests.object_store import KEY, SECRET
from tests.object_store import ObjectStore as S3


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run broken", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of: {', '.join(one.name for one in SET_UPS)}; all, if none is given"
    )
    parser.add_argument("--only", choices=("disk", "s3"), help="on one of both places")
    args = parser.parse_args()
    os.environ.update(TZ="UTC", GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
    time.tzset()
    chosen = [one for one in SET_UPS if not args.names or one.name in args.names]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="geo-broken-") as folder, without_spark():
        s3 = None if args.only == "disk" else S3(free_ports(1)[0], Path(folder, "s3.log"))
        try:
            for place in [name for name in ("disk", "s3") if args.only in (None, name)]:
                for number, one in enumerate(chosen):
                    below, began = Path(folder, f"{place}-{number}"), time.monotonic()
                    below.mkdir()
                    try:
                        shown = check(one, Place(below, s3 if place == "s3" else None))
                    except AssertionError:
                        failed += 1
                        print(f"{place:4}  {one.name:20}  FAILED\n{traceback.format_exc(limit=-2)}", flush=True)
                        continue
                    finally:
                        flush_all()
                    told = f"told by {', '.join(shown.screens) or 'nobody but itself'}{', an event' if shown.event else ''}"
                    why = f" ({one.elsewhere})" if one.elsewhere and len(shown.screens) < len(SCREENS) else ""
                    since = ", since when too" if shown.since else ""
                    took = f"{time.monotonic() - began:.0f} s"
                    print(f"{place:4}  {one.name:20}  {took:>4}  {told}{since}{why}; ended by: {shown.done}", flush=True)
        finally:
            if s3 is not None:
                s3.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
