"""spark-submit entry point of `geo replicate`: ./spark-submit.sh jobs/replicate.py ARGUMENTS (see `geo replicate --help`)."""

import sys

from geo.cli import main

if __name__ == "__main__":
    sys.exit(main(["replicate", *sys.argv[1:]]))
