"""spark-submit and wheel entry point of `geo reconcile`: ./spark-submit.sh jobs/reconcile.py ARGUMENTS (see `geo reconcile --help`)."""

from geo.cli.main import run_job


def main() -> None:
    run_job("reconcile")


if __name__ == "__main__":
    main()
