"""spark-submit and wheel entry point of `geo verify`: ./spark-submit.sh jobs/verify.py ARGUMENTS (see `geo verify --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["verify", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
