"""spark-submit entry point of `geo verify`: ./spark-submit.sh jobs/verify.py ARGUMENTS (see `geo verify --help`)."""

import sys

from geo.cli import main

if __name__ == "__main__":
    sys.exit(main(["verify", *sys.argv[1:]]))
