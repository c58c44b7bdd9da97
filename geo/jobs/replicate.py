"""spark-submit and wheel entry point of `geo replicate`: ./spark-submit.sh jobs/replicate.py ARGUMENTS (see `geo replicate --help`)."""

from geo.cli.main import run_job


def main() -> None:
    run_job("replicate")


if __name__ == "__main__":
    main()
