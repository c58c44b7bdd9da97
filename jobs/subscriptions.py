"""spark-submit entry point of `geo subscriptions fold`, the query that folds acknowledgements into `system/cursors`:
./spark-submit.sh jobs/subscriptions.py ARGUMENTS (see `geo subscriptions fold --help`)."""

import sys

from geo.cli import main

if __name__ == "__main__":
    sys.exit(main(["subscriptions", "fold", *sys.argv[1:]]))
