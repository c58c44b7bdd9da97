"""spark-submit entry point of `geo consume`: ./spark-submit.sh jobs/consume.py ARGUMENTS (see `geo consume --help`)."""

import sys

from geo.cli import main

if __name__ == "__main__":
    sys.exit(main(["consume", *sys.argv[1:]]))
