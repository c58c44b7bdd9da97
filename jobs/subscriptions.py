"""spark-submit and wheel entry point of `geo subscriptions fold`, the query that folds acknowledgements into `system/cursors`:
./spark-submit.sh jobs/subscriptions.py ARGUMENTS (see `geo subscriptions fold --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["subscriptions", "fold", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
