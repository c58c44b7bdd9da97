"""spark-submit and wheel entry point of `geo subscriptions`: of `fold` and of `sync`. The first folds acknowledgements into `system/cursors`, the
other is the stateful query that joins snapshot markers (PIP-33). ./spark-submit.sh jobs/subscriptions.py fold|sync ARGUMENTS (see `geo subscriptions
--help`)."""

from geo.cli.main import run_job


def main() -> None:
    run_job("subscriptions")


if __name__ == "__main__":
    main()
