"""The command line `geo VERB …`: its arguments, exit codes and errors. What a verb does is in `verbs.py`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

from geo import subscription_verbs, verbs
from geo.errors import GeoError, UsageError
from geo.log.message_id import MessageId
from geo.log.names import ALL_TOPICS
from geo.output import Output, configure_logging, printable
from geo.trigger import AVAILABLE_NOW

EPILOG = "exit codes: 0 ok, 1 failure, 2 usage or configuration, 3 refused as unsafe"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Returns the exit code: 0 ok, 1 failure, 2 usage or configuration, 3 refused as unsafe."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["topics"] and arguments[1:] and arguments[1][:1] == "-" and arguments[1] not in ("-h", "--help"):
        arguments.insert(1, "list")  # `geo topics` with no verb lists
    args = _parser().parse_args(arguments)
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


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="text for people, or JSON with stable keys"
    )
    common.add_argument("-v", "--verbose", action="store_true", help="log more, show where an error came from")
    configured = argparse.ArgumentParser(add_help=False, parents=[common])
    configured.add_argument("--config", required=True, metavar="FILE", help="the YAML configuration")

    parser = argparse.ArgumentParser(prog="geo", description="Geo-replication of topics in Delta Lake tables.", epilog=EPILOG)
    verb_parsers = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    def verb(
        run: Callable[[argparse.Namespace, Output], int],
        does: str,
        parent: argparse.ArgumentParser = configured,
        *,
        among: Any = None,
        name: str | None = None,
    ) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = (among or verb_parsers).add_parser(
            name or run.__name__, help=does, description=does, parents=[parent], epilog=EPILOG
        )
        added.set_defaults(verb=run)
        return added

    p = verb(verbs.demo, "two clusters on this disk, real flights, a crash, and a check", common)
    p.add_argument("--root", metavar="DIR", help="keep the demo's clusters here (default: a temporary folder)")

    p = verb(verbs.publish, "publish JSON lines or a Kafka topic, each line or record exactly once")
    p.add_argument("--cluster", required=True, help="the cluster in which the messages are written")
    p.add_argument("--topic", required=True, help="persistent://tenant/namespace/name")
    source = p.add_mutually_exclusive_group(required=True)
    source.add_argument("--jsonl", metavar="PATH", help="a JSON lines file or a directory of them")
    source.add_argument("--kafka", metavar="BOOTSTRAP", help="host:port,… of a Kafka cluster; see `kafka` in the configuration")
    p.add_argument("--kafka-topic", metavar="K", help="the Kafka topic to read, one ledger per partition")
    p.add_argument(
        "--kafka-start",
        choices=("earliest", "latest"),
        default="earliest",
        help="where nothing was read yet (default: %(default)s)",
    )
    p.add_argument("--accept-lost", action="store_true", help="go on behind Kafka offsets that are gone")
    p.add_argument("--producer", default="default", help="name under which progress is kept (default: %(default)s)")
    p.add_argument("--rejects", metavar="DIR", help="where lines or records that cannot be published are listed")
    p.add_argument(
        "--batch-bytes",
        type=_from_1_to(2**31, "a number of bytes, from 1 to 2 GiB"),
        default=64 * 1024 * 1024,
        help="most bytes of files in one commit (default: 64 MiB)",
    )
    p.add_argument(
        "--batch-rows",
        type=_from_1_to(10_000_000, "a number of records, from 1 to 10000000"),
        default=200_000,
        help="most Kafka records in one commit (default: %(default)s)",
    )
    _running(p)

    p = verb(verbs.replicate, "run the inbound links of a cluster")
    p.add_argument("--cluster", required=True, metavar="TARGET", help="the cluster to replicate into")
    p.add_argument("--source", help="only the link from this cluster")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")
    _running(p)

    p = verb(verbs.reconcile, "compare a link's two logs and append what is missing; resolves a FAILED link")
    p.add_argument("--source", required=True)
    p.add_argument("--target", required=True)
    p.add_argument("--topic", required=True, metavar="GLOB")
    p.add_argument("--dry-run", action="store_true", help="count, write nothing")
    p.add_argument("--take-over", action="store_true", help="replace a runner that seems to live")

    p = verb(verbs.verify, "compare every cluster's log by message id and content")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")

    of_links = verb_parsers.add_parser("links", help="list links with their states, reset one").add_subparsers(
        metavar="VERB", required=True
    )
    p = verb(verbs.links, "list the links of every cluster with their states", among=of_links, name="list")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")

    does = "let a link begin anew at a time; what is before is not fetched any more, what is there stays"
    p = verb(verbs.reset, does, among=of_links)
    p.add_argument("--source", required=True)
    p.add_argument("--target", required=True)
    p.add_argument("--topic", required=True, metavar="GLOB")
    p.add_argument("--to", required=True, type=_start, metavar="earliest|latest|TIME", help="TIME as 2026-11-21T12:00:00Z")
    p.add_argument("--dry-run", action="store_true", help="count, write nothing")
    p.add_argument("--take-over", action="store_true", help="replace a runner that seems to live")

    p = verb(verbs.rebuild, "give a region that lost data its own messages back from a peer")
    p.add_argument("--cluster", required=True, help="the region that lost data; its producers must be stopped")
    p.add_argument("--from", required=True, dest="peer", metavar="PEER", help="the cluster that holds them")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")
    p.add_argument("--dry-run", action="store_true", help="count, write nothing")

    p = verb(verbs.erase, "empty messages of one cluster for good (the right to erasure); their ids stay")
    p.add_argument("--cluster", required=True)
    p.add_argument("--topic", required=True, help="persistent://tenant/namespace/name")
    p.add_argument("--where", required=True, metavar="SQL", help="which messages, such as \"key = 'customer 7'\"")
    p.add_argument("--dry-run", action="store_true", help="count, write nothing")

    p = verb(verbs.maintain, "drop expired dates, compact small files, clean up, beside live streams")
    p.add_argument("--cluster", required=True, help="the cluster whose tables are maintained")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")
    p.add_argument("--dry-run", action="store_true", help="print files, rows and bytes, write nothing")
    p.add_argument("--yes", action="store_true", help="expire also what a link that has long been silent has not read")

    p = verb(verbs.peek, "show the newest messages of a topic")
    p.add_argument("--cluster", required=True)
    p.add_argument("--topic", required=True)
    p.add_argument("-n", type=_from_1_to(10_000, "a number from 1 to 10000"), default=5, help="how many (default: %(default)s)")
    p.add_argument("--payload", choices=("text", "hex"), help="show payloads too")

    of_topics = verb_parsers.add_parser("topics", help="list topics (also without VERB), create, set policies").add_subparsers(
        metavar="VERB", required=True
    )
    p = verb(verbs.topics, "list the topics of every cluster", among=of_topics, name="list")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")

    p = verb(verbs.create, "create a topic in a cluster, or add partitions; links bring it to the others", among=of_topics)
    p.add_argument("--cluster", required=True)
    p.add_argument("--topic", required=True, help="persistent://tenant/namespace/name")
    count = _from_1_to(10_000, "a number of partitions, from 1 to 10000")
    p.add_argument(
        "--partitions", type=count, metavar="N", help="NAME-partition-0 to NAME-partition-N-1; more than before adds some"
    )
    p.add_argument(
        "--columns", metavar="SQL", help="a typed topic's own columns, such as 'amount DECIMAL(10,2), currency STRING'"
    )

    p = verb(
        verbs.set_policy, "set a topic's policy in a cluster; it goes before the configuration's", among=of_topics, name="set"
    )
    p.add_argument("--cluster", required=True, help="out of which it holds")
    p.add_argument("--topic", required=True, help="persistent://tenant/namespace/name; a partitioned topic: all its partitions")
    policy = p.add_mutually_exclusive_group(required=True)
    policy.add_argument("--replication-clusters", metavar="A,B,…", help="only links between these carry it; one alone: none does")
    policy.add_argument("--inherit", action="store_true", help="again as the configuration says")

    _subscriptions(verb_parsers, verb)

    verb(verbs.doctor, "check versions, session, table properties, locks and retention; name the fix of each finding")
    return parser


def _subscriptions(verb_parsers: Any, verb: Callable[..., argparse.ArgumentParser]) -> None:
    """`consume`, `subscriptions …` and `failover`."""

    def named(p: argparse.ArgumentParser, *, cluster: str | None) -> None:
        if cluster is not None:
            p.add_argument("--cluster", required=True, help=cluster)
        p.add_argument("--topic", required=True, help="persistent://tenant/namespace/name")
        p.add_argument("--subscription", required=True, metavar="S", help="the named consumer group")

    def starts(p: argparse.ArgumentParser, does: str) -> None:
        p.add_argument(
            "--start", type=_start, metavar="earliest|latest|TIME", default="latest", help=f"{does} (default: %(default)s)"
        )

    p = verb(subscription_verbs.consume, "deliver a topic's messages to a subscription and print them")
    named(p, cluster="the cluster whose log is read")
    p.add_argument("--limit", type=_from_1_to(10**12, "a number of messages"), metavar="N", help="stop after so many messages")
    p.add_argument("--for", type=_seconds, dest="for_s", metavar="SECONDS", help="stop after so long")
    p.add_argument("--ack", default="all", metavar="all|none|REGEX", help="acknowledge all (default), none, or by the key")
    starts(p, "where a subscription begins that is not there yet")
    p.add_argument(
        "--redelivery-delay", type=_seconds, default=60.0, metavar="SECONDS", help="of what is not acknowledged (default: 60)"
    )
    p.add_argument(
        "--max-redeliveries",
        type=_from_1_to(254, "a number from 1 to 254"),
        metavar="N",
        help="then a message goes to TOPIC-S-DLQ (default: it comes back until it is acknowledged)",
    )
    _running(p, default="200 ms", also="available-now: what is there")

    of = verb_parsers.add_parser("subscriptions", help="list, create, look at, reset, delete, fold").add_subparsers(
        metavar="VERB", required=True
    )
    p = verb(subscription_verbs.subscriptions, "list the subscriptions of every cluster", among=of, name="list")
    p.add_argument("--topic", default=ALL_TOPICS, metavar="GLOB", help="only these topics (default: %(default)s)")
    p = verb(subscription_verbs.create, "create a subscription without consuming", among=of)
    named(p, cluster="where the record is written; links bring it to the others")
    starts(p, "where it begins")
    p = verb(subscription_verbs.status, "how far a subscription is in every cluster, and why one is behind", among=of)
    named(p, cluster=None)
    p = verb(subscription_verbs.reset, "let a subscription begin anew somewhere, in every cluster", among=of)
    named(p, cluster="by whose log the place is found")
    where = "TIME as 2026-11-21T12:00:00Z, MESSAGE_ID as eu:7:42"
    p.add_argument("--to", required=True, type=_place, metavar="earliest|latest|TIME|MESSAGE_ID", help=where)
    p.add_argument("--dry-run", action="store_true", help="say what it would repeat or skip, write nothing")
    p.add_argument("--yes", action="store_true", help="do it")
    p = verb(subscription_verbs.delete, "delete a subscription in every cluster", among=of)
    named(p, cluster="where the record is written; links bring it to the others")
    p.add_argument("--yes", action="store_true", help="do it")
    does = "fold acknowledgements into system/cursors, and publish compact records"
    p = verb(subscription_verbs.run_fold, does, among=of, name="fold")
    p.add_argument("--cluster", required=True, help="the cluster whose acknowledgements are folded")
    _running(p)

    p = verb(subscription_verbs.failover, "move a subscription's consumer to another cluster; works when the first is gone")
    named(p, cluster=None)
    p.add_argument("--from", required=True, dest="source", metavar="A", help="where it was consumed")
    p.add_argument("--to", required=True, dest="target", metavar="B", help="where it will be")
    p.add_argument("--wait", type=_seconds, default=30.0, metavar="SECONDS", help="for a consumer that still runs (default: 30)")
    p.add_argument("--dry-run", action="store_true", help="say what will be repeated, write nothing")


def _running(parser: argparse.ArgumentParser, default: str = AVAILABLE_NOW, also: str = "or an interval: '1 second'") -> None:
    parser.add_argument("--trigger", default=default, help=f"default: {default}; {also}")
    parser.add_argument("--take-over", action="store_true", help="replace a runner that seems to live; it is fenced and stops")


def _from_1_to(limit: int, what: str) -> Callable[[str], int]:
    """The type of an argument that is a number from 1 to `limit`, described by `what`."""

    def parse(text: str) -> int:
        if not text.isdigit() or not 0 < int(text) <= limit:
            raise argparse.ArgumentTypeError(what)
        return int(text)

    return parse


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 10**9:
        raise argparse.ArgumentTypeError("a number of seconds")
    return seconds


def _place(text: str) -> Any:
    try:
        return MessageId.parse(text)
    except UsageError:
        return _start(text)


def _start(text: str) -> Any:
    if text in ("earliest", "latest"):
        return text
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise argparse.ArgumentTypeError("earliest, latest or a time such as 2026-11-21T12:00:00Z") from None
    return time.replace(tzinfo=time.tzinfo or timezone.utc)


if __name__ == "__main__":
    sys.exit(main())
