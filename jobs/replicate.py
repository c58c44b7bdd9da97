"""spark-submit and wheel entry point of `geo replicate`: ./spark-submit.sh jobs/replicate.py ARGUMENTS (see `geo replicate --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["replicate", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
