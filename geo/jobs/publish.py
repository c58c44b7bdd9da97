"""spark-submit and wheel entry point of `geo publish`: ./spark-submit.sh jobs/publish.py ARGUMENTS (see `geo publish --help`)."""

from geo.cli.main import run_job


def main() -> None:
    run_job("publish")


if __name__ == "__main__":
    main()
