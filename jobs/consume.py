"""spark-submit and wheel entry point of `geo consume`: ./spark-submit.sh jobs/consume.py ARGUMENTS (see `geo consume --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["consume", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
