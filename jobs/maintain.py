"""spark-submit and wheel entry point of `geo maintain`: ./spark-submit.sh jobs/maintain.py ARGUMENTS (see `geo maintain --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["maintain", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
