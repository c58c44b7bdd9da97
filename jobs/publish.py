"""spark-submit and wheel entry point of `geo publish`: ./spark-submit.sh jobs/publish.py ARGUMENTS (see `geo publish --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["publish", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
