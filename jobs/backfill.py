"""spark-submit and wheel entry point of `geo backfill`: ./spark-submit.sh jobs/backfill.py ARGUMENTS (see `geo backfill --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["backfill", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
