"""The command line: `geo VERB …`. Each verb is a few lines over a function that returns data; nothing is decided here."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from geo.config import load
from geo.errors import GeoError
from geo.log.names import ALL_TOPICS, Topic, check_topic_glob, topic_glob_matches
from geo.output import Output, configure_logging, printable
from geo.trigger import AVAILABLE_NOW, parse_trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from geo.replication.replicate import LinkReport

EPILOG = "exit codes: 0 ok, 1 failure, 2 usage or configuration, 3 refused as unsafe"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code: 0 ok, 1 failure, 2 usage or configuration, 3 refused as unsafe."""
    args = _parser().parse_args(argv)
    output = Output(as_json=args.output == "json")
    configure_logging(verbose=args.verbose, as_json=output.as_json)
    try:
        return int(args.verb(args, output) or 0)
    except GeoError as error:
        print(f"geo: {printable_lines(str(error))}", file=sys.stderr)
        if args.verbose:
            raise
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from pyspark.errors import PySparkException

        if args.verbose or not isinstance(error, PySparkException):
            raise
        print(f"geo: Spark failed: {printable_lines(str(error).split('JVM stacktrace')[0].strip())}", file=sys.stderr)
        print("geo: --verbose shows where.", file=sys.stderr)
        return 1


def printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


# -- verbs ---------------------------------------------------------------------------------------------------------


def publish(args: argparse.Namespace, output: Output) -> int:
    from geo.log.publish import publish_json_lines

    parse_trigger(args.trigger)
    config, topic = load(args.config), Topic.parse(args.topic)
    config.cluster(args.cluster)
    stream = publish_json_lines(
        _spark("geo publish"),
        args.jsonl,
        topic,
        config=config,
        cluster=args.cluster,
        producer=args.producer,
        trigger=args.trigger,
        rejects=args.rejects,
        batch_bytes=args.batch_bytes,
        take_over=args.take_over,
    )
    _until_stopped(stream.await_termination, stream.stop)
    done = stream.published
    output.data(
        {"topic": str(topic), "cluster": args.cluster, "producer": args.producer, "published": done.rows, "rejected": done.rejected,
         "commits": done.commits, "rejects_file": stream.rejects_file}
    )  # fmt: skip
    output.text(f"{topic} in {args.cluster}: {done.rows:,} messages published in {done.commits} commits by {args.producer}")
    if done.rejected:
        output.text(f"{done.rejected:,} lines rejected, each with its line number and reason in {stream.rejects_file}")
    return 0


def replicate(args: argparse.Namespace, output: Output) -> int:
    from geo.replication.replicate import Replicator
    from geo.replication.state import State

    parse_trigger(args.trigger)
    config = load(args.config)
    runner = Replicator(
        _spark("geo replicate"),
        config,
        args.cluster,
        source=args.source,
        topics=check_topic_glob(args.topic),
        trigger=args.trigger,
        take_over=args.take_over,
        on_event=lambda report: output.text(_told(report)),
    )
    signal.signal(signal.SIGTERM, lambda *_: runner.stop())
    signal.signal(signal.SIGINT, lambda *_: runner.stop())
    reports = runner.run()
    output.data([{"link": r.link, "topic": r.topic, "state": r.state.value, "reason": r.reason, "replicated": r.replicated,
                  "source_version": r.source_version} for r in reports])  # fmt: skip
    if not reports:
        output.text(f"nothing to replicate into {args.cluster}: its sources have no matching topic yet")
    return 1 if any(r.state in (State.FAILED, State.DELAYED) for r in reports) else 0


def reconcile(args: argparse.Namespace, output: Output) -> int:
    from geo.replication.replicate import reconcile_links

    config = load(args.config)
    config.link(args.source, args.target)
    done = reconcile_links(
        _spark("geo reconcile"),
        config,
        args.source,
        args.target,
        topics=check_topic_glob(args.topic),
        dry_run=args.dry_run,
        take_over=args.take_over,
    )
    output.data([{"link": r.link, "topic": r.topic, "missing": r.missing, "appended": r.appended, "source_version": r.source_version,
                  "dry_run": args.dry_run} for r in done])  # fmt: skip
    for r in done:
        what = f"{r.missing:,} messages missing, nothing written" if args.dry_run else f"{r.appended:,} missing messages appended"
        output.text(f"{r.link} {r.topic}: {what}, compared with version {r.source_version} of the source")
    return 0


def verify(args: argparse.Namespace, output: Output) -> int:
    from geo.ops.verify import verify as run

    config = load(args.config)
    report = run(_spark("geo verify"), config, check_topic_glob(args.topic))
    output.data(report.to_json())
    output.text(*report.lines())
    return 0 if report.clean else 1


def peek(args: argparse.Namespace, output: Output) -> int:
    from geo.log.reader import newest
    from geo.log.tables import ClusterTables

    config, topic = load(args.config), Topic.parse(args.topic)
    found = list(newest(ClusterTables(_spark("geo peek"), config.cluster(args.cluster)), topic, args.n))
    for message in found:
        raw = message.pop("payload")
        message["payload_bytes"] = None if raw is None else len(raw)
        if args.payload and raw is not None:
            message["payload"] = raw.hex() if args.payload == "hex" else raw.decode("utf-8", "replace")
    output.data(found)
    for message in found:
        shown = {k: v for k, v in message.items() if v not in (None, {}) and k not in ("message_id", "columns")}
        shown |= {k: v for k, v in message["columns"].items() if v is not None}
        output.text(f"{message['message_id']}  " + "  ".join(f"{k}={printable(str(v))}" for k, v in shown.items()))
    return 0


def topics(args: argparse.Namespace, output: Output) -> int:
    from geo.log.tables import ClusterTables
    from geo.log.topics import registered_topics

    config, spark = load(args.config), _spark("geo topics")
    found: list[dict[str, Any]] = []
    for name, cluster in config.clusters.items():
        tables = ClusterTables(spark, cluster)
        for registered in registered_topics(tables):
            if topic_glob_matches(args.topic, registered.topic):
                log = tables.log(registered.topic)
                found.append({"topic": str(registered.topic), "cluster": name, "typed": registered.typed,
                              "created_at": registered.created_at, "version": log.latest_version(),
                              "messages": log.read().where("marker IS NULL").count()})  # fmt: skip
    found.sort(key=lambda row: (row["topic"], row["cluster"]))
    output.data(found)
    rows = [(r["topic"], r["cluster"], "typed" if r["typed"] else "bytes", f"{r['messages']:,}", r["version"]) for r in found]
    output.table(("TOPIC", "CLUSTER", "KIND", "MESSAGES", "VERSION"), rows)
    return 0


def doctor(args: argparse.Namespace, output: Output) -> int:
    from geo.ops.doctor import examine

    config = load(args.config)
    findings = examine(_spark("geo doctor"), config)
    output.data([{"level": f.level, "where": f.where, "what": f.what, "fix": f.fix} for f in findings])
    for f in findings:
        output.text(f"{f.level:5} {f.where}: {f.what}" + (f"\n      fix: {f.fix}" if f.fix else ""))
    return 1 if any(f.level == "error" for f in findings) else 0


def demo(args: argparse.Namespace, output: Output) -> int:
    from geo.demo import run

    return run(args.root, output)


# -- helpers ---------------------------------------------------------------------------------------------------------


def _spark(name: str) -> SparkSession:
    """Only now: parsing and configuration errors need no JVM."""
    from geo.session import session

    return session(name)


def _until_stopped(wait: Callable[[float], bool], stop: Callable[[], None]) -> None:
    """Wait for the end of a stream; SIGTERM and SIGINT let the running batch end first."""
    asked = threading.Event()

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    while not wait(0.5):
        if asked.is_set():
            stop()
            return


def _told(report: LinkReport) -> str:
    ends = f", {report.replicated:,} messages replicated, at version {report.source_version} of the source"
    head = f"{report.link} {report.topic}: {report.state.value}"
    if report.reason:
        return f"{head}: {report.reason}"
    return head + (ends if report.state.value == "STOPPED" else f" from version {report.source_version}")


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="text for people, or JSON with stable keys"
    )
    common.add_argument("-v", "--verbose", action="store_true", help="log more, show where an error came from")
    configured = argparse.ArgumentParser(add_help=False, parents=[common])
    configured.add_argument("--config", required=True, metavar="FILE", help="the YAML configuration")

    parser = argparse.ArgumentParser(prog="geo", description="Geo-replication of topics in Delta Lake tables.", epilog=EPILOG)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(
        run: Callable[[argparse.Namespace, Output], int], does: str, parent: argparse.ArgumentParser = configured
    ) -> argparse.ArgumentParser:
        added = verbs.add_parser(run.__name__, help=does, description=does, parents=[parent], epilog=EPILOG)
        added.set_defaults(verb=run)
        return added

    p = verb(demo, "two clusters on this disk, real flights, a crash, and a check", common)
    p.add_argument("--root", metavar="DIR", help="keep the demo's clusters here (default: a temporary folder)")

    p = verb(publish, "publish JSON lines to a topic, each line exactly once")
    p.add_argument("--cluster", required=True, help="the cluster in which the messages are written")
    p.add_argument("--topic", required=True, help="persistent://tenant/namespace/name")
    p.add_argument("--jsonl", required=True, metavar="PATH", help="a JSON lines file or a directory of them")
    p.add_argument("--producer", default="default", help="name under which progress is kept (default: %(default)s)")
    p.add_argument("--rejects", metavar="DIR", help="where lines that cannot be published are listed")
    p.add_argument(
        "--batch-bytes", type=_size, default=64 * 1024 * 1024, help="most bytes of files in one commit (default: 64 MiB)"
    )
    _running(p)

    p = verb(replicate, "run the inbound links of a cluster")
    p.add_argument("--cluster", required=True, metavar="TARGET", help="the cluster to replicate into")
    p.add_argument("--source", help="only the link from this cluster")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")
    _running(p)

    p = verb(reconcile, "compare a link's two logs and append what is missing; resolves a FAILED link")
    p.add_argument("--source", required=True)
    p.add_argument("--target", required=True)
    p.add_argument("--topic", required=True, metavar="GLOB")
    p.add_argument("--dry-run", action="store_true", help="count, write nothing")
    p.add_argument("--take-over", action="store_true", help="replace a runner that seems to live")

    p = verb(verify, "compare every cluster's log by message id and content")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")

    p = verb(peek, "show the newest messages of a topic")
    p.add_argument("--cluster", required=True)
    p.add_argument("--topic", required=True)
    p.add_argument("-n", type=_count, default=5, help="how many (default: %(default)s)")
    p.add_argument("--payload", choices=("text", "hex"), help="show payloads too")

    p = verb(topics, "list the topics of every cluster")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")

    verb(doctor, "check versions, session, table properties, locks and retention; name the fix of each finding")
    return parser


def _running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trigger", default=AVAILABLE_NOW, help="available-now (default), or an interval: '1 second'")
    parser.add_argument("--take-over", action="store_true", help="replace a runner that seems to live; it is fenced and stops")


def _size(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= 2**31:
        raise argparse.ArgumentTypeError("a number of bytes, from 1 to 2 GiB")
    return int(text)


def _count(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= 10_000:
        raise argparse.ArgumentTypeError("a number from 1 to 10000")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
