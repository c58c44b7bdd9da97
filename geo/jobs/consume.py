"""spark-submit and wheel entry point of `geo consume`: ./spark-submit.sh jobs/consume.py ARGUMENTS (see `geo consume --help`)."""

from geo.cli.main import run_job


def main() -> None:
    run_job("consume")


if __name__ == "__main__":
    main()
