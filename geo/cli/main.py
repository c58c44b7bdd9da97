"""The command line `geo VERB …`: exit codes and errors. Which verbs there are is in `verbs.py`; the module of one is imported when it is chosen."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from geo.cli.arguments import EPILOG, Parser, Verbs, was_cut_short
from geo.cli.logs import clear_line
from geo.cli.noted import note_verb
from geo.cli.output import NobodyReadsError, Output, ready_streams
from geo.cli.run_log import RunLog
from geo.cli.signals import Signals
from geo.cli.verbs import VERBS, spelled
from geo.config.found import find
from geo.disk import fullest
from geo.errors import GeoError, NoSparkError
from geo.late import spare_pandas
from geo.now import utc_now
from geo.reasons import Reason
from geo.remedies import OF_STORE
from geo.text import first_line, printable_lines
from geo.version import program_version

log = logging.getLogger(__name__)

_WITHOUT_PANDAS = ("status",)
"""Verbs that only look, and are done before it would be imported."""


def main(argv: Sequence[str] | None = None, *, is_process: bool = False) -> int:
    """Run one verb. Returns the exit code: 0 ok, 1 failure, 2 usage or configuration, 3 refused as unsafe, 130 ended by Ctrl-C.

    Where no arguments are given, or it `is_process`, this process is for the verb alone: Ctrl-C ends it.
    """
    ready_streams()
    if "_ARGCOMPLETE" in os.environ:
        from geo.cli.completion import complete

        complete(make_parser)
    arguments = spelled(sys.argv[1:] if argv is None else argv)
    if argv is None and arguments[:1] and arguments[0] in _WITHOUT_PANDAS:  # of a process of its own
        spare_pandas()
    end: Callable[[int], object] = os._exit if is_process or argv is None else str
    with RunLog(arguments) as run, Signals(run.ended, end) as signals:
        try:
            run.code = code = _run(arguments, run, signals)
        except KeyboardInterrupt:
            run.code = code = signals.interrupted()
    return code


def _run(arguments: Sequence[str], run: RunLog, signals: Signals) -> int:
    try:
        args = make_parser(arguments[0] if arguments else None).parse_args(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in ("pyspark", "delta", "py4j"):
            raise
        print(f"geo: {error}. Where the runtime brings no Spark: pip install 'delta-geo[spark]'", file=sys.stderr)
        return 2
    args.run, args.signals, output = run, signals, Output(as_json=args.output == "json")
    run.configure(verbose=args.verbose, as_json=output.as_json)
    code, began = 1, utc_now()
    fault: Exception | None = None
    try:
        if "config" in args:
            args.config, by = find(args.config)
            output.config = args.config
            log.debug("the configuration is %s (%s)", args.config, by)
        code = int(args.verb(args, output) or 0)
        if not code and was_cut_short(args):
            _fail(run, output, "a signal ended it before all was done. Run it again for the rest.")
            code = 1
    except NobodyReadsError as error:
        code = error.exit_code
    except (GeoError, NoSparkError) as error:
        code, fault = error.exit_code, error
        _fail(run, output, output.typed(str(error)))
        if args.verbose:
            raise
    except KeyboardInterrupt:
        code = signals.interrupted()
    except Exception as error:
        from geo.faults import faults_here, of_spark, reason_of

        fault = error
        if args.verbose or not isinstance(error, faults_here()):
            raise
        said = first_line(error)
        what = "Spark failed" if of_spark(error) and not said.startswith(OF_STORE) else "a file or a storage failed"
        if reason_of(error) is Reason.TARGET_DISK_FULL:
            what, said = (
                f"a disk is full, {_full_disk(args, error)}",
                said.partition(";")[0] + "; free space there, and run it again",
            )
        _fail(run, output, f"{what}: {said} (--verbose shows where)")
    finally:
        note_verb(arguments, args, began, code, fault)
    return code


def _full_disk(args: argparse.Namespace, error: Exception) -> str:
    """Names the disk that is full: where an error says so, else as it seems."""
    from geo.cli.running import full_disk
    from geo.config import load

    if isinstance(error, OSError) and error.filename is not None:
        return fullest([str(error.filename)]) or str(error.filename)
    return f"as it seems {full_disk(load(args.config).clusters.values() if 'config' in args else ())}"


def _fail(run: RunLog, output: Output, why: str) -> None:
    """Say why it does not end well: of what is long, and tells programs, in the log's form."""
    run.reason = why
    if run.is_long and output.as_json:
        log.error("%s", why, extra={"event": "error", "reason": why, "work": run.verb})
    else:
        clear_line()
        print(f"geo: {printable_lines(why)}", file=sys.stderr)


def run_job(verb: str) -> None:
    """Run a verb with the arguments of this process, and end it with the exit code unless that is 0.

    Databricks calls the entry point of a wheel, takes its return for success whatever it is, and an end with 0 for a failure.
    """
    if code := main([verb, *sys.argv[1:]], is_process=True):
        sys.exit(code)


def make_parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = Parser(prog="geo", description="Geo-replication of topics in Delta Lake tables.", epilog=EPILOG)
    parser.add_argument(
        "--version", action="version", version=f"delta-geo {program_version() or '(from a zip: its version is that of the file)'}"
    )
    verbs = Verbs(parser)
    for name, (module, does) in VERBS.items():
        if name == chosen:
            getattr(import_module(f"geo.cli.{module}"), f"add_{name.replace('-', '_')}")(verbs, does)
        else:
            verbs.mention(name, does)
    return parser
