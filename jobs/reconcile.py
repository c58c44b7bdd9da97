"""spark-submit and wheel entry point of `geo reconcile`: ./spark-submit.sh jobs/reconcile.py ARGUMENTS (see `geo reconcile --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["reconcile", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
