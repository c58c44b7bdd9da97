"""spark-submit entry point of `geo maintain`: ./spark-submit.sh jobs/maintain.py ARGUMENTS (see `geo maintain --help`)."""

import sys

from geo.cli import main

if __name__ == "__main__":
    sys.exit(main(["maintain", *sys.argv[1:]]))
