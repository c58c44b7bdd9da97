"""`python -m tests.storages`, see its `--help`: two regions whose tables are not on a disk of this machine, by the command line as users
type it: published, replicated, consumed, killed in the middle, and compared; on an S3 API that answers now and then that it is busy, on
HDFS with two producers that write one log, and on HDFS below a Spark standalone master; and what a store promises, on S3 servers of other makes
(`tests/s3_servers.py`). Prints what is shown; exit code 0, or 1 with what failed.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from geo.config import load
from geo.delta.predicate import IsNull
from geo.delta.scan import rows_where
from geo.journal.cluster import connect_later
from geo.names import Topic
from geo.session import session
from geo.streams import timetable
from geo.text import counted
from tests.far import Far
from tests.hdfs import Hdfs
from tests.kafka_broker import free_ports
from tests.object_store import IF_ABSENT, KEY, SECRET, ObjectStore
from tests.other_engines import kept_house, read_alike, wait_for_table
from tests.processes import last_line
from tests.regions import CLUSTERS, CONSUMER, LINES, TOPIC, Regions, consumed, story, verified
from tests.s3_servers import servers
from tests.spark_master import WORKERS, Application, Failed, Standalone, Started, on_both, tell

MINUTE_S = 60.0
_WINDOW_S = 600.0
_MANY, _FILES, _PACE_S = 5, 10, 10.0
_TRIGGER, _KEYS = ["--trigger", "5 seconds"], ("broker-1", f"broker-{_MANY}", "consumer", "producer")
_PRICES = {"reads": ("GET", "HEAD"), "lists and writes": ("LIST", "PUT", "POST"), "deletions": ("DELETE",)}
"""Requests by what they cost: a list or a write costs as much as twelve reads, a deletion nothing."""

_METHODS = [method for some in _PRICES.values() for method in some]

_BROUGHT_S = 180.0
"""Until a broker that runs has brought what is new, with the start of a process that looks."""

_SHARED_S = 600.0
_KILL_S, _BRIEF_S, _LONG_S = 45.0, 180.0, 900.0
"""Between two kills of who writes one region at once, and how long that goes on."""

_PROVIDER = "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
"""Of Amazon's SDK. Its profile names a program, which is asked again when what it said last has expired."""

_BESIDE = """
import json, sys, threading
from geo.config import load
from geo.fleet.broker import Broker
from geo.session import session
from geo.subscription.consumer import Subscription

path, count = sys.argv[1], int(sys.argv[2])
config = load(path)
spark = session("a broker and a consumer", schemes=config.schemes)
broker = Broker(spark, path, "eu", trigger="1 second")
runs = threading.Thread(target=broker.run)
runs.start()


def take(messages):
    for row in messages.select("key").collect():
        print(json.dumps({"key": row.key}), flush=True)
    return messages


Subscription(spark, "persistent://shop/web/clicks", "beside", config, "eu").run(take, limit=count, for_s=200)
broker.stop()
runs.join()
"""

_PROGRAM = """
import json
from datetime import datetime, timedelta, timezone
until = datetime.now(timezone.utc) + timedelta(seconds=30)
key = dict(AccessKeyId=open("{file}").read(), SecretAccessKey="{secret}", Expiration=until.strftime("%Y-%m-%dT%H:%M:%SZ"))
print(json.dumps(dict(Version=1, **key)))
"""


def s3(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    store, _ = _on_s3(folder, running)
    roots = {cluster: f"s3a://geo-{cluster}/tables" for cluster in CLUSTERS}
    regions = Regions(_made(folder / "regions"), roots, {cluster: {} for cluster in CLUSTERS}, storage=store.storage())
    yield from story(regions, brief=brief)
    if not brief:
        running_one = regions.start("broker", "--cluster", "eu", "--trigger", "5 seconds")
        running_one.finds("(STOPPED|RUNNING|published|brought)")
        said = regions.broker("eu", code=3)
        running_one.signal(signal.SIGKILL)
        running_one.ends(-signal.SIGKILL)
        yield f"a second broker of eu beside the first: {_line_with('already run by', said)}"
        regions.give("eu")
        program = [sys.executable, "-c", _BESIDE, str(regions.path), str(regions.lines["eu"] + regions.lines["us"])]
        both = Started("a broker and a consumer in one process", folder / "both.log", *program, env=regions.environment())
        both.ends(0)
        yield f"in the session of a broker: {consumed(regions, both.said)}"
    before = store.counts()
    store.fail_one_in(20)
    for cluster in () if brief else CLUSTERS:
        regions.give(cluster)
    for cluster in ("us",) if brief else ("us", "eu", "us"):
        regions.broker(cluster)
    store.fail_one_in(0)
    counts = store.counts() - before
    if not counts["failed"]:
        raise Failed("no request was answered with 503")
    yield f"a 503 to one request in twenty ({counts['failed']} of {sum(counts.values()) - counts['failed']}), passes of brokers"
    yield verified(regions)
    yield f"requests in all: {', '.join(f'{count:,} {what}' for what, count in sorted(store.counts().items()))}"


def writers(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """Two brokers that share topics, a publisher and a consumer write one region at once. One of them is killed again and again, at a request that
    it is in the middle of, while the store is busy now and then, and loses answers, those to commits among them."""
    store, _ = _on_s3(folder, running)
    roots = {cluster: f"s3a://geo-{cluster}/tables" for cluster in CLUSTERS}
    topics = [TOPIC, f"{TOPIC}-2"]
    regions = Regions(
        _made(folder / "regions"), roots, {cluster: {} for cluster in CLUSTERS}, topics=topics, storage=store.storage(),
        placement={"broker_timeout": "20 seconds"},
    )  # fmt: skip
    lines = _made(folder / "more")
    more = 0

    def give() -> None:
        nonlocal more
        for cluster in CLUSTERS:
            regions.give(cluster)
        (lines / f"{more:06}.jsonl").write_text("".join(f'{{"key": "more-{n}"}}\n' for n in range(more, more + LINES)))
        more += LINES

    give()
    at = ("--cluster", "eu")
    verbs = {
        "broker one": ("broker", *at, "--name", "one", "--trigger", "1 second"),
        "broker two": ("broker", *at, "--name", "two", "--trigger", "1 second"),
        "publisher": ("publish", *at, "--topic", TOPIC, "--jsonl", str(lines), "--producer", "more", "--trigger", "1 second"),
        "consumer": ("consume", *at, "--topic", TOPIC, "--subscription", "s", "--trigger", "1 second", "-o", "json"),
    }
    numbers, chance = Counter[str](), random.Random()  # no secret
    there, keys = dict[str, Started](), dict[str, str]()

    def start(name: str) -> None:
        numbers[name] += 1
        keys[name] = f"{name.replace(' ', '-')}-{numbers[name]}"  # by which the store knows whose requests are whose
        there[name] = regions.start(*verbs[name], GEO_TEST_KEY=keys[name])
        running.callback(there[name].end)

    for name in verbs:
        if name == "consumer":  # which begins where the topic is
            there["publisher"].until("a topic", lambda: bool(_keys(regions, TOPIC)["eu"]))
        start(name)
    other = regions.start("broker", "--cluster", "us", "--trigger", "1 second")
    running.callback(other.end)
    killed: list[Started] = []
    before, until = store.counts(), time.monotonic() + (_BRIEF_S if brief else _LONG_S)
    store.fail_one_in(20)
    for name in itertools.cycle(verbs):
        if time.monotonic() > until:
            break
        time.sleep(_KILL_S)
        give()
        store.next_of("PUT", "lost", 3)
        store.next_of(IF_ABSENT, "lost", 2)
        told = _killed(store, keys[name], there[name], chance, partial(_hand_over, regions, name.partition(" ")[2]), give)
        yield f"killed {keys[name]} {told}"
        killed.append(there[name])
        start(name)
    store.fail_one_in(0)
    counts = store.counts() - before
    give()
    for one in killed:
        one.ends(-signal.SIGKILL)
    yield (
        f"{len(killed)} were killed; 503 to {counts['failed']:,} requests of {sum(counts[method] for method in _METHODS):,}, "
        f"{counts['lost']} answers lost, {counts['lost, if absent']} of them to puts if absent"
    )
    deadline = time.monotonic() + _SHARED_S
    wanted = sorted([*regions.keys, *(f"more-{n}" for n in range(more))])
    while (found := _keys(regions, TOPIC)) != dict.fromkeys(CLUSTERS, wanted):
        if time.monotonic() > deadline:
            raise Failed(
                f"{len(wanted)} lines, { ({name: len(keys) for name, keys in found.items()}) } messages:\n{there['broker one'].said[-3000:]}"
            )
        time.sleep(5)
    yield f"{len(wanted)} lines of three producers, each a message once in both regions"
    there["consumer"].until("each message to be given", lambda: _heard([*killed, *there.values()]) == set(wanted))
    yield f"the consumer got all {len(wanted)}"
    for one in (*there.values(), other):
        one.signal(signal.SIGTERM)
    for one in (*there.values(), other):
        one.ends(0)
    said = regions.run("verify")
    if "clean:" not in said:
        raise Failed(said)
    yield f"geo verify: {last_line(said)}"


def _killed(
    store: ObjectStore, key: str, one: Started, chance: random.Random, hand_over: Callable[[], None], give: Callable[[], None]
) -> str:
    """Kill it at a random request, once it has committed since its start, to a topic's log if it does so soon, after `hand_over`; at which one, and
    what it had committed. If it asks too little it is killed at its next request, once there is more to do. Raises Failed if it does not commit, or asks nothing more."""

    def made(where: str) -> int:
        return sum(where in commit for commit in store.commits(key))

    one.until("a commit", lambda: bool(made("")))
    deadline = time.monotonic() + _KILL_S
    while not made("/topics/") and time.monotonic() < deadline:
        hand_over()
        time.sleep(1)
    method, most = chance.choice((("", 200), ("PUT", 12), (IF_ABSENT, 5)))
    store.kill(
        key,
        one.pid,
        method,
        chance.randrange(most),
        *chance.choice((("before", 0), ("taken", 0), ("later", chance.uniform(1, 40)))),
    )
    deadline = time.monotonic() + _KILL_S
    while (at := store.killed(key)) is None:
        if time.monotonic() > deadline:
            store.kill(key, one.pid, "", 0, "taken")
            give()
            deadline = math.inf
        if not one.processes():
            raise Failed(f"{one.name} has ended by itself:\n{one.said[-3000:]}")
        time.sleep(0.1)
    return f"at {at}, with {counted(made(''), 'commit')} since its start, {made('/topics/')} of them to topics' logs"


def _hand_over(regions: Regions, broker: str) -> None:
    """Ask that the busiest topic goes to a broker that has just been started and owns nothing yet, as far as it can be asked now. "": to none."""
    with suppress(Failed):
        if not broker:
            return
        said = regions.run("bundles", "lookup", "--cluster", "eu", "--topic", TOPIC, "-o", "json")
        if (found := re.search(r'"bundle": "([^"]+)",\s*"owner": "(\w+)"', said)) and found[2] != broker:
            regions.run("bundles", "transfer", "--cluster", "eu", "--bundle", found[1], "--broker", broker, "--wait", "0")


def claims(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """Processes that claim the same topics at once, half of which are killed (`tests/claiming.py`), while the store is busy and loses answers."""
    store = ObjectStore(free_ports(1)[0], folder / "store.log")
    running.callback(store.close)
    far = Far.made(store, folder)
    store.fail_one_in(20)
    store.next_of(IF_ABSENT, "lost", 50 if brief else 200)
    yield from _by_program("tests.claiming", str(far.path), "8", "25" if brief else "200")
    counts = store.counts()
    yield f"503 to {counts['failed']:,} requests, {counts['lost']} answers to puts if absent lost"


def others(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """delta-rs keeps house in a log beside its broker; then Spark, deltalake and polars read it."""
    store, _ = _on_s3(folder, running)
    roots = {cluster: f"s3a://geo-{cluster}/tables" for cluster in CLUSTERS}
    regions = Regions(_made(folder / "regions"), roots, {cluster: {} for cluster in CLUSTERS}, storage=store.storage())
    regions.give("us")
    regions.broker("us")
    both = {cluster: regions.start("broker", "--cluster", cluster, "--trigger", "1 second") for cluster in CLUSTERS}
    places = {cluster: f"s3://geo-{cluster}/tables/topics/shop/web/clicks" for cluster in CLUSTERS}
    for number in range(2 if brief else 5):
        for cluster in CLUSTERS:
            regions.give(cluster)
        for cluster in CLUSTERS:
            wait_for_table(places[cluster], store.options(), _BROUGHT_S)
            said = kept_house(places[cluster], store.options(), lambda table: table.count() >= len(regions.keys), _BROUGHT_S)
            yield f"{cluster}, lines {number + 1}: {said}"
    for broker in both.values():
        broker.signal(signal.SIGTERM)
        broker.ends(0)
    yield verified(regions)
    spark = session("delta-geo storages", schemes=load(regions.path).schemes)
    for cluster, place in places.items():
        for said in read_alike(spark, place, store.options()):
            yield f"{cluster}: {said}"


def _heard(programs: Iterable[Started]) -> set[str]:
    """The keys that consumers among these were given."""
    return {key for one in programs for key in re.findall(r'"key": "([a-z]+-\d+)"', one.said)}


def _keys(regions: Regions, topic: str) -> dict[str, list[str]]:
    """By cluster, the keys of a topic's messages, as the files of its log have them."""
    config, found = load(regions.path), dict[str, list[str]]()
    os.environ.update(GEO_TEST_KEY=KEY, GEO_TEST_SECRET=SECRET)
    for name, cluster in config.clusters.items():
        log = connect_later(_no_spark, cluster).log(Topic.parse(topic))
        rows = rows_where(log, log.latest_version(), ("key",), IsNull("marker")) if log.exists() else None
        found[name] = [] if rows is None else sorted(rows["key"].to_pylist())
    return found


def _no_spark() -> SparkSession:
    raise Failed("a log on a store is read by this process")


def faults(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """What a person is told of a storage that cannot be used: one line with what to do, and no trace."""
    port, nobody = free_ports(2)
    store = ObjectStore(port, folder / "store.log")
    running.callback(store.close)
    store.make_bucket("geo-eu")
    place, settings = {"eu": "s3a://geo-eu/tables"}, store.settings("geo-eu")
    regions = Regions(_made(folder / "regions"), place, {"eu": settings})
    publish = ("publish", "--cluster", "eu", "--topic", TOPIC, "--jsonl", str(regions.give("eu")))
    regions.run(*publish)
    for what, remedy, refusal in (
        ("a key that is not known", "check the credential", ("InvalidAccessKeyId", 403)),
        ("a secret that is wrong", "check the credential", ("SignatureDoesNotMatch", 403)),
        ("a credential that has expired", "renew the credential", ("ExpiredToken", 400)),
        ("a bucket that may only be read", "check the credential", ("AccessDenied", 403, "PUT,POST,DELETE")),
    ):
        store.refuse(*refusal)
        for verb in (publish, ("topics",)) if len(refusal) == 2 else (publish,):
            yield f"{what}: {_line_with(remedy, regions.run(*verb, code=1))}"
        store.refuse()
    regions.run(*publish)
    elsewhere = {**settings, "fs.s3a.bucket.geo-eu.endpoint": f"http://127.0.0.1:{nobody}"}
    for what, remedy, root, conf in (
        ("an endpoint where nobody is", "nobody answers there", place["eu"], elsewhere),
        (
            "a bucket that is not there",
            "make the bucket",
            "s3a://nowhere/tables",
            {key.replace("geo-eu", "nowhere"): value for key, value in settings.items()},
        ),
    ):
        other = Regions(_made(folder / what.split()[1]), {"eu": root}, {"eu": conf})
        yield f"{what}: {_line_with(remedy, other.run(*publish, code=1))}"
    yield from _by_program("tests.denied", str(_made(folder / "denied")))


def _by_program(module: str, *arguments: str) -> Iterator[str]:
    """What a program of the tests prints. Raises Failed with its errors unless it ends well."""
    ended = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)
    yield from ended.stdout.splitlines()
    if ended.returncode:
        raise Failed(ended.stderr[-5000:])


def keys(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """Keys that are good for some seconds are rotated while a link runs, whose provider asks a program of the user's for them."""
    store, settings = _on_s3(folder, running)
    file, conf = folder / "key", {}
    roots = {cluster: f"s3a://geo-{cluster}/tables" for cluster in CLUSTERS}
    for cluster, said in settings.items():
        conf[cluster] = {key: value for key, value in said.items() if not key.endswith((".access.key", ".secret.key"))}
        conf[cluster][f"fs.s3a.bucket.geo-{cluster}.aws.credentials.provider"] = _PROVIDER
    regions = Regions(_made(folder / "regions"), roots, conf)
    profile, program = folder / "profile", folder / "keys.py"
    program.write_text(_PROGRAM.format(file=str(file), secret=SECRET))
    profile.write_text(f"[default]\ncredential_process = {sys.executable} {program}\n")
    os.environ["AWS_CONFIG_FILE"] = str(profile)

    def rotate(key: str) -> None:
        file.write_text(key)
        store.takes_only(key)

    def brought() -> int:
        """How many messages eu has, once it has all."""
        deadline = time.monotonic() + _BROUGHT_S
        while True:
            found = re.search(r'"cluster": "eu",[^}]*"messages": (\d+)', regions.run("topics", "-o", "json"))
            count = int(found[1]) if found else 0
            if count >= regions.lines["us"]:
                return count
            if time.monotonic() > deadline:
                raise Failed(f"eu has {count} messages of {regions.lines['us']}:\n{broker.said[-5000:]}")

    rotate("first")
    regions.give("us")
    regions.broker("us")
    broker = regions.start("broker", "--cluster", "eu", "--trigger", "5 seconds")
    for key in ("second", "third"):
        yield f"eu has {brought()} messages by its running broker; from now on the store takes the {key} key only"
        rotate(key)
        regions.give("us")
        regions.broker("us")
    have, refused = brought(), store.counts()["of another key"]
    if not refused:
        raise Failed("no request with an older key was refused, so it is not shown that the broker took the newer one")
    yield f"eu has {have} messages by the same broker ({refused} requests with an older key were refused)"
    broker.signal(signal.SIGTERM)
    broker.ends(0)
    yield verified(regions)


def _line_with(words: str, said: str) -> str:
    """The last line that was said, which has these words in it. Raises Failed."""
    line = last_line(said)
    if words not in line:
        raise Failed(f"it was not said: {words}:\n{said[-3000:]}")
    return line if len(line) < 300 else f"{line[:300]} …"


def requests(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """What regions on S3 ask of it, which costs money: for each commit and while nothing happens, by processes with an access key each.
    Fails where that is more than is said."""
    store, conf = _on_s3(folder, running)
    for count in (_MANY, 1):
        topics = [TOPIC, *(f"{TOPIC}-{number}" for number in range(1, count))]
        roots = {cluster: f"s3a://geo-{cluster}/{count}" for cluster in CLUSTERS}
        regions = Regions(_made(folder / str(count)), roots, conf, topics=topics)
        files = {cluster: regions.give(cluster) for cluster in CLUSTERS}
        for cluster in (*CLUSTERS, "eu"):
            regions.broker(cluster)
        for cluster in CLUSTERS:
            regions.run("consume", *CONSUMER, "--cluster", cluster)
        running.callback(regions.start("broker", "--cluster", "eu", *_TRIGGER, GEO_TEST_KEY=f"broker-{count}").end)
    of_lines = ["--cluster", "us", "--topic", TOPIC, "--jsonl", str(files["us"].parent)]
    producer = regions.start("publish", *of_lines, *_TRIGGER, GEO_TEST_KEY="producer")
    consumer = regions.start("consume", *CONSUMER, *_TRIGGER, GEO_TEST_KEY="consumer")
    for one in (producer, consumer):
        running.callback(one.end)
    began = time.monotonic()
    time.sleep(2 * MINUTE_S)  # all have begun, and have nothing to do
    busy, busy_s = _asked(store, partial(_give, regions, "us", files["us"])), _FILES * _PACE_S + MINUTE_S
    if (have := consumer.said.count('"key"')) != _FILES * LINES:
        raise Failed(f"{have} of {_FILES * LINES} messages came to the consumer:\n{consumer.said[-3000:]}")
    time.sleep(max(0.0, began + timetable.REMOTE_HOUSE_ROUND_S + MINUTE_S - time.monotonic()))  # who wrote keeps house once
    rest, hours = _asked(store, partial(time.sleep, _WINDOW_S)), _WINDOW_S / 3600
    for key, asked in busy.items():
        asked.subtract({method: round(count * busy_s / _WINDOW_S) for method, count in rest[key].items()})
    more = Counter(rest[f"broker-{_MANY}"])
    more.subtract(rest["broker-1"])
    too_many = []
    for what, asked, parts, most in (
        ("an hour at rest: the broker of a region with a topic and acknowledgements", rest["broker-1"], hours, 2_000),
        ("an hour at rest: each topic more", more, (_MANY - 1) * hours, 800),
        ("an hour at rest: a consumer", rest["consumer"], hours, 4_000),
        ("an hour at rest: a producer", rest["producer"], hours, None),
        (f"each commit of {LINES} messages: its producer", busy["producer"], _FILES, 10),
        (f"each commit of {LINES} messages: the broker of the other region", busy["broker-1"], _FILES, None),
        (f"each commit of {LINES} messages: a consumer there", busy["consumer"], _FILES, None),
    ):
        found = sum(asked[one] for of in _PRICES.values() for one in of) / parts
        kinds = ", ".join(f"{sum(asked[one] for one in of) / parts:,.1f} {kind}" for kind, of in _PRICES.items())
        yield f"{what}: {found:,.1f} ({kinds}){'' if most is None else f', at most {most:,}'}"
        if most is not None and found > most:
            too_many.append(what)
    if too_many:
        raise Failed(f"too many: {'; '.join(too_many)}")


def _give(regions: Regions, cluster: str, file: Path) -> None:
    """In a file that grows: for each of its own a ledger would be opened, four requests more."""
    for _ in range(_FILES):
        regions.give(cluster, file)
        time.sleep(_PACE_S)
    time.sleep(MINUTE_S)  # what hangs on the last one


def _asked(store: ObjectStore, while_doing: Callable[[], None]) -> dict[str, Counter[str]]:
    """What was asked meanwhile, by access key and method."""
    before = {key: store.counts(key) for key in _KEYS}
    while_doing()
    return {key: store.counts(key) - of_key for key, of_key in before.items()}


def points(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """The crash points that need Spark, in worlds on S3 (`tests/run_s3.py`)."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/run_s3.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise Failed(ended.stdout[-5000:])
    yield f"publishing, linking, claims and compaction stopped at each crash point: {ended.stdout.strip().splitlines()[-1]}"


def hdfs(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    name_node, regions = _on_hdfs(folder, running)
    yield from story(regions, brief=brief)

    if brief:
        regions.broker("us")
        yield verified(regions)
        return
    # Two more producers of one log, in processes of their own, without a lock that would keep them apart.
    producers = []
    for number in range(2):
        lines = regions.give("eu").rename(folder / f"lines-{number}.jsonl")
        what = ("publish", "--cluster", "eu", "--topic", TOPIC, "--jsonl", str(lines), "--producer", f"other-{number}")
        producers.append(regions.start(*what))
    producers[0].finds("(messages, .* a second|published)")
    name_node.pause()
    if not any(producer.processes() for producer in producers):
        raise Failed("both producers had ended before HDFS was halted")
    time.sleep(5)
    name_node.go_on()
    for producer in producers:
        producer.ends(0)
    yield "two processes published to one log, and HDFS did not answer for 5 s while one did"
    regions.broker("us")
    yield verified(regions)


def cluster(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """By jobs on a Spark standalone master, as `tests/standalone.py` has them, with nothing of the tables on a disk of this machine."""
    _, regions = _on_hdfs(folder, running)
    spark, applications = Standalone(folder, running), itertools.count()

    def submit(job: str, *arguments: str, code: int = 0, **env: str) -> Application:
        named = f"{next(applications)}-{job}"
        one = spark.submit(named, job, "--config", str(regions.path), *arguments, **env)
        one.process.ends(code)
        return one

    def broker(region: str, code: int = 0, **env: str) -> Application:
        return submit("broker", "--cluster", region, "--trigger", "available-now", code=code, **env)

    for region in CLUSTERS:
        regions.give(region)
    broker("us")
    broker("eu", code=-signal.SIGKILL, GEO_CRASH="link-after-reconcile-append:kill")
    brought = broker("eu").work()
    yield (
        f"on HDFS below a Spark master with {WORKERS} workers: a broker of us, one of eu that was killed behind the commit by which a link "
        f"began, and one more of eu ({on_both(brought.tasks, 'broker', WORKERS)} of its tasks)"
    )
    if not brief:
        yield consumed(regions, submit("consume", *CONSUMER).process.said)
    broker("us")
    said = submit("verify").process.finds(r"(?m)^(clean: .*)")
    yield f"geo verify: {said}; the tables alone: {regions.check()} messages, each line once, both regions equal"


def shared(folder: Path, running: ExitStack, *, brief: bool) -> Iterator[str]:
    """Two brokers share the topics of eu, on HDFS below a Spark standalone master; one of them is killed."""
    topics = [f"persistent://shop/web/clicks-{number}" for number in range(4)]
    _, regions = _on_hdfs(folder, running, topics=topics, placement={"broker_timeout": "20 seconds"})
    spark = Standalone(folder, running, cores=2, memory="2g")
    small = ("--conf", "spark.cores.max=1", "--conf", "spark.executor.memory=512m")

    def broker(region: str, name: str, trigger: str) -> Application:
        what = ("--config", str(regions.path), "--cluster", region, "--name", name, "--trigger", trigger)
        return spark.submit(f"{region}-{name}", "broker", *what, options=small)

    def owners() -> dict[str, list[str]]:
        """By broker, the bundles of eu that it owns."""
        found: dict[str, list[str]] = {}
        said = regions.run("bundles", "list", "--cluster", "eu", "-o", "json")
        for bundle, owner in re.findall(r'"bundle": "([^"]+)",\s*"owner": "(\w+)"', said):
            found.setdefault(owner, []).append(bundle)
        return found

    def equal(*living: Application) -> int:
        deadline = time.monotonic() + _SHARED_S
        while True:
            try:
                return regions.check()
            except Failed:
                for one in living:
                    if not one.process.processes():
                        raise Failed(f"{one.process.name} has ended:\n{one.process.said[-3000:]}") from None
                if time.monotonic() > deadline:
                    raise
                time.sleep(5)

    for region in CLUSTERS:
        regions.give(region)
    brokers = {name: broker("eu", name, "1 second") for name in ("one", "two")}
    us = broker("us", "only", "1 second")
    yield f"two brokers of eu and one of us: {equal(us, *brokers.values())} messages in both regions"
    before = owners()
    if set(before) != set(brokers):
        raise Failed(f"the bundles of eu are not shared: {before}")
    yield f"bundles of eu by broker: { ({name: len(found) for name, found in before.items()}) }"
    killed = brokers["one"].process
    killed.signal(signal.SIGKILL)
    killed.ends(-signal.SIGKILL)
    for region in CLUSTERS:
        regions.give(region)
    yield f"broker one was killed: {equal(us, brokers['two'])} messages in both regions"
    if set(after := owners()) != {"two"}:
        raise Failed(f"broker two does not own all bundles of eu: {after}")
    yield f"broker two owns all {len(after['two'])} bundles; {verified(regions)}"


def _on_s3(folder: Path, running: ExitStack) -> tuple[ObjectStore, dict[str, dict[str, str]]]:
    """A store with a bucket for each cluster, and how each is reached."""
    store = ObjectStore(free_ports(1)[0], folder / "store.log")
    running.callback(store.close)
    for cluster in CLUSTERS:
        store.make_bucket(f"geo-{cluster}")
    return store, {cluster: store.settings(f"geo-{cluster}") for cluster in CLUSTERS}


def _on_hdfs(folder: Path, running: ExitStack, **more: Any) -> tuple[Hdfs, Regions]:
    name_node = Hdfs(folder / "hdfs", free_ports(1)[0])
    running.callback(name_node.close)
    roots = {cluster: f"{name_node.uri}/geo/{cluster}" for cluster in CLUSTERS}
    return name_node, Regions(
        _made(folder / "regions"), roots, {cluster: {"dfs.replication": "1"} for cluster in CLUSTERS}, **more
    )


STORAGES: Mapping[str, Callable[..., Iterator[str]]] = {
    "s3": s3,
    "writers": writers,
    "claims": claims,
    "others": others,
    "points": points,
    "hdfs": hdfs,
    "cluster": cluster,
    "shared": shared,
    "requests": requests,
    "faults": faults,
    "keys": keys,
    "servers": servers,
}

BRIEF = ("s3", "cluster")
"""What the CI runs."""


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run storages")
    parser.add_argument("storage", nargs="*", metavar="STORAGE", help=f"of {', '.join(STORAGES)} (default: all)")
    parser.add_argument("--brief", action="store_true", help="publish, replicate through a kill, compare: what the CI runs")
    args = parser.parse_args()
    if unknown := set(args.storage) - set(STORAGES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return tell(
        "storages",
        {name: partial(STORAGES[name], brief=args.brief) for name in args.storage or (BRIEF if args.brief else STORAGES)},
    )


if __name__ == "__main__":
    sys.exit(main())
