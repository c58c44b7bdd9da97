"""Asking before what nobody can take back. One rule for all verbs: docs/command-line.md."""

from __future__ import annotations

import argparse
import sys

from geo.cli.output import Output
from geo.errors import UnsafeError


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it; without it a terminal is asked, and anything else is refused")


def require_agreement(args: argparse.Namespace, output: Output, what: str) -> None:
    """Returns once somebody has agreed: by `--yes`, or on a terminal by an answer. `what` it would do, as a sentence without its full stop. A
    rehearsal needs nobody. To be called after all that can be refused without Spark, and before that. Raises UnsafeError."""
    if args.yes or getattr(args, "dry_run", False):
        return
    if sys.stdin.isatty() and sys.stderr.isatty() and not output.as_json:
        print(f"{what}. Do it? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
        raise UnsafeError("nothing was changed: the answer was not yes.")
    raise UnsafeError(f"nothing was changed: {what}. To do it: the same with --yes.")
