"""spark-submit and wheel entry point of `geo maintain`: ./spark-submit.sh jobs/maintain.py ARGUMENTS (see `geo maintain --help`)."""

from geo.cli.main import run_job


def main() -> None:
    run_job("maintain")


if __name__ == "__main__":
    main()
