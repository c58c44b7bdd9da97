"""spark-submit entry point of `geo publish`: ./spark-submit.sh jobs/publish.py ARGUMENTS (see `geo publish --help`)."""

import sys

from geo.cli import main

if __name__ == "__main__":
    sys.exit(main(["publish", *sys.argv[1:]]))
