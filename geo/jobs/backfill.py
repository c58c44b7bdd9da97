"""spark-submit and wheel entry point of `geo backfill`: ./spark-submit.sh jobs/backfill.py ARGUMENTS (see `geo backfill --help`)."""

from geo.cli.main import run_job


def main() -> None:
    run_job("backfill")


if __name__ == "__main__":
    main()
