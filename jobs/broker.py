"""spark-submit and wheel entry point of `geo broker`: ./spark-submit.sh jobs/broker.py ARGUMENTS (see `geo broker --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["broker", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
