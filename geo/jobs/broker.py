"""spark-submit and wheel entry point of `geo broker`: ./spark-submit.sh jobs/broker.py ARGUMENTS (see `geo broker --help`)."""

from geo.cli.main import run_job


def main() -> None:
    run_job("broker")


if __name__ == "__main__":
    main()
