"""spark-submit and wheel entry point of `geo subscriptions`: of `fold`, the query that folds acknowledgements into `system/cursors`, and of
`sync`, the stateful query that joins snapshot markers (PIP-33). ./spark-submit.sh jobs/subscriptions.py fold|sync ARGUMENTS (see
`geo subscriptions --help`)."""

import sys

from geo.cli.main import main as geo


def main() -> int:
    return geo(["subscriptions", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
