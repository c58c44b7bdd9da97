"""spark-submit and wheel entry point of `geo verify`: ./spark-submit.sh jobs/verify.py ARGUMENTS (see `geo verify --help`)."""

from geo.cli.main import run_job


def main() -> None:
    run_job("verify")


if __name__ == "__main__":
    main()
