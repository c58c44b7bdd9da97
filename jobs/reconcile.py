"""spark-submit entry point of `geo reconcile`: ./spark-submit.sh jobs/reconcile.py ARGUMENTS (see `geo reconcile --help`)."""

import sys

from geo.cli import main

if __name__ == "__main__":
    sys.exit(main(["reconcile", *sys.argv[1:]]))
