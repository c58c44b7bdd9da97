"""`./run trips`: how far a value travels through geo's files, from calls that were made and not from names.

Each trip is made once, with two small regions and Spark, and what it enters of `geo/` is noted, in any thread: each function once, at its
first entry, below its first caller. Functions of other packages, lambdas, what a value is (`__str__`, `__eq__`) and what `@dataclass`
writes count for nothing.

- A *way* is the functions in the order of their first entry.
- A *stay* is functions in a row of one file. The way *crosses* so many files as there are different ones in it.
- A *return* is a stay in a file that was left before: somebody who reads along turns back to it. Coming back to a caller that enters
  nothing new is none, so returns are stays less files.

Of each trip three ways are counted:
- *in its room*: functions of the room that makes the trip alone, for a link `geo/replication`. What rooms below it do is an errand.
- *its value*: functions, of any room, that the value goes into or comes out of, as an argument or a result: rows are Arrow tables of
  messages and DataFrames, acknowledgements also the values of `geo/subscription/acks`. A start and a hand-over carry nothing.
- *whole*: every function.

`--way TRIP` prints a way instead, file by file: `<-` before a return, the caller where it is in another file, `*` at what has the value. `--at REVISION` lets the program of that commit, which has one, count its code, in a worktree that is removed after it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pyarrow as pa
from pyspark.sql import DataFrame

from geo.coordination.ownership import Ownership
from geo.delta.driver import Driver
from geo.delta.process import Process
from geo.fleet.placement.leading import TRANSFER
from geo.fleet.placement_requests import ask
from geo.fleet.turns import turns_of
from geo.journal.cluster import ClusterTables
from geo.log.publish import publish
from geo.names import ALL_TOPICS
from geo.replication.link_topics import LinkTopics
from geo.replication.replicator_work import ReplicatorWork
from geo.session import session
from geo.streams.life import State
from geo.subscription.acks.namespace_folds import Folding
from tests.members import Alone, bundle_owners
from tests.processes import LEAST
from tests.subscription.consuming import NONE, consume, consuming
from tests.world import TOPIC, World

ROOT = Path(__file__).resolve().parents[1]
GEO = f"{ROOT / 'geo'}/"
MANY = 11_000
"""More rows than a link brings without Spark."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """The first entry of a function. `caller` is the one that entered it, None if nobody in geo did."""

    file: str
    name: str
    caller: Entry | None


Way = Sequence[Entry]


def stays(way: Way) -> list[list[Entry]]:
    """The way, parted where it goes to another file."""
    return [list(stay) for _, stay in itertools.groupby(way, lambda entry: entry.file)]


def crossed(way: Way) -> int:
    """How many files the way crosses."""
    return len({entry.file for entry in way})


def returns(way: Way) -> int:
    """How often the way comes back to a file that it left."""
    return len(stays(way)) - crossed(way)


class Trip:
    """What was entered on one trip, in order, and which of it the value went into or came out of."""

    def __init__(self, name: str, room: str, is_value: Callable[[object], bool]) -> None:
        self.name, self.room, self._is_value = name, room, is_value
        self._entries: dict[CodeType, Entry] = {}
        self._carriers: set[Entry] = set()
        self._open: dict[int, list[Entry]] = {}
        """By thread the functions that were entered and not left."""
        self._lock = threading.RLock()
        self.has_begun = True

    def note(self, frame: FrameType, event: str, result: object) -> None:
        """As `sys.setprofile` calls it."""
        code = frame.f_code
        if not self.has_begun or event not in ("call", "return") or not _counts(code):
            return
        with self._lock:
            inside = self._open.setdefault(threading.get_ident(), [])
            if event == "call":
                if code not in self._entries:
                    name = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has none
                    self._entries[code] = Entry(code.co_filename.removeprefix(GEO), name, inside[-1] if inside else None)
                inside.append(self._entries[code])
            elif inside:  # else it was entered before the trip began
                inside.pop()
            values = frame.f_locals.values() if event == "call" else [result]
            entry = self._entries.get(code)
            if entry is not None and entry not in self._carriers and any(map(self._is_value, values)):
                self._carriers.add(entry)

    @property
    def whole(self) -> Way:
        return list(self._entries.values())

    @property
    def in_room(self) -> Way:
        return [entry for entry in self.whole if entry.file.startswith(f"{self.room}/")]

    @property
    def of_value(self) -> Way:
        return [entry for entry in self.whole if entry in self._carriers]

    def row(self) -> str:
        """Its line of the table."""
        room, value, whole = self.in_room, self.of_value, self.whole
        ways = [(crossed(room), returns(room)), (crossed(value), returns(value)), (len(whole), crossed(whole), returns(whole))]
        return f"| {self.name} | `{self.room}` | {' | '.join(', '.join(map(str, way)) if any(way) else '' for way in ways)} |"

    def lines(self, way: Way) -> Iterator[str]:
        """A way, file by file."""
        left: set[str] = set()
        for stay in stays(way):
            file = stay[0].file
            yield f"{'<- ' if file in left else '   '}{file}"
            left.add(file)
            for entry in stay:
                mark = "*" if entry in self._carriers else " "
                by = "" if entry.caller is None or entry.caller.file == file else f"   by {entry.caller.name}"
                yield f"     {mark} {entry.name}{by}"


def _counts(code: CodeType) -> bool:
    """Whether it is a function of geo's, and none of those that say what a value is. (Bodies of modules and classes are not optimized.)"""
    is_special = code.co_name.startswith("<") or (code.co_name.startswith("__") and code.co_name != "__init__")
    return code.co_filename.startswith(GEO) and bool(code.co_flags & 1) and not is_special


def _each(value: object) -> Iterable[object]:
    return value if isinstance(value, (tuple, list)) else (value,)


def is_rows(value: object) -> bool:
    """Messages at hand, or those that a plan of Spark's has."""
    return any(
        isinstance(one, DataFrame)
        or (isinstance(one, (pa.Table, pa.RecordBatch)) and "payload" in one.schema.names and one.num_rows > 0)
        for one in _each(value)
    )


def is_acknowledgement(value: object) -> bool:
    """What is known of a subscription, as a value or as rows."""
    return is_rows(value) or any(
        dataclasses.is_dataclass(one) and type(one).__module__.startswith("geo.subscription.acks") for one in _each(value)
    )


def nothing(value: object) -> bool:
    return False


class Trips:
    """The trips, one after the other in one world."""

    def __init__(self, world: World) -> None:
        self._world, self.done = world, list[Trip]()

    def _new(self, name: str, room: str, is_value: Callable[[object], bool] = nothing) -> Trip:
        self.done.append(Trip(name, room, is_value))
        return self.done[-1]

    def run(self) -> list[Trip]:
        self._rows()
        self._acknowledgements()
        self._bundle()
        return self.done

    def _rows(self) -> None:
        """From `publish` into the other region."""
        world = self._world
        world.publish("us", 10)  # what is made once is made
        rows = world.rows(0, 20)
        with noted(self._new("publish", "log", is_rows)):
            publish(rows, TOPIC, world.config, "us", producer="p", order_by="number")
        group, work, owned = self._link()
        with noted(self._new("first start", "replication")):
            work.start(owned, lambda: False)
        group.record_states([(work, State.RUNNING)])
        assert work.end()
        assert not group.release([work])
        _, work, owned = self._link()
        with noted(self._new("start", "replication")):
            work.start(owned, lambda: False)
        for name, end in (("row", 30), ("many rows", MANY)):
            world.publish("us", end)
            with noted(self._new(name, "replication", is_rows)):
                while world.count("eu") < end:
                    if due := work.follow():
                        due()
        work.lease.abandon()

    def _link(self) -> tuple[LinkTopics, ReplicatorWork, Ownership]:
        """The link's topic, owned and not begun."""
        config, tables = self._world.config, self._world.tables
        link = config.link("us", "eu")
        turns = turns_of(link, config)
        group = LinkTopics(tables("eu"), tables("us"), config, link, ALL_TOPICS, "1 second", turns, take_over=False)
        ((_, work),) = group.discover({}).fresh
        assert not group.claim([work])
        assert work.lease.held is not None
        return group, work, work.lease.held

    def _acknowledgements(self) -> None:
        """From a consumer's function into the other region: to the cursor there, and to a consumer that runs there."""
        world = self._world
        consume(world, "us", NONE, start="latest")  # what is made once is made
        trip = self._new("acknowledgement, told", "subscription", is_acknowledgement)
        trip.has_begun = False

        def acknowledge(messages: DataFrame) -> DataFrame:
            trip.has_begun = True
            return messages

        world.publish("us", MANY + 10)
        with noted(trip):
            consume(world, "us", acknowledge)
        world.replicate("eu")
        with noted(self._new("acknowledgement, folded", "subscription", is_acknowledgement)):
            Folding(world.spark, world.config, "eu").run()
        trip = self._new("acknowledgement, heard", "subscription", is_acknowledgement)
        trip.has_begun = False
        threading.setprofile(trip.note)
        with consuming(world, "eu", NONE) as there:
            there.until(lambda: any("-tail" in thread.name for thread in threading.enumerate()))
            threading.setprofile(None)
            world.publish("us", MANY + 20)
            trip.has_begun, before = True, there.subscription.state.acked
            consume(world, "us")
            there.until(lambda: there.subscription.state.acked != before)
            trip.has_begun = False

    def _bundle(self) -> None:
        """A bundle of topics goes from one broker to another."""
        world = self._world
        world.path.write_text(world.path.read_text() + "placement: {bundles: 1}\n")
        world.reload()
        elsewhere = Process("another-host", 1, "1", system="another")
        tables = ClusterTables(Driver(lambda: world.spark, lambda: elsewhere), world.config.cluster("us"))
        a, b = Alone(world, [TOPIC]), Alone(world, [TOPIC], "b", tables)
        a.until(lambda: True)
        b.member.round(b.now)
        ((bundle, _),) = bundle_owners(world.tables("us")).items()
        ask(world.tables("us"), bundle, TRANSFER, broker="b")
        with noted(self._new("hand-over of a bundle", "fleet")):
            for _ in range(20):
                for one in (a, b):
                    one.now += 1
                    one.member.round(one.now)
                    one.has_all()
        assert bundle_owners(world.tables("us")) == {bundle: "b"}
        for one in (b, a):
            one.member.close()


@contextmanager
def noted(trip: Trip) -> Iterator[None]:
    """What this thread, and those that are started meanwhile, enter is of the trip."""
    threading.setprofile(trip.note)
    sys.setprofile(trip.note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        trip.has_begun = False


def made() -> list[Trip]:
    """All trips, made in a world of their own."""
    spark = session("trips", master="local[2]", conf=LEAST)
    with tempfile.TemporaryDirectory() as folder:
        trips = Trips(World(Path(folder), spark=spark)).run()
    spark.stop()
    return trips


def _at(revision: str, arguments: Sequence[str]) -> int:
    """The program of a revision, with its code."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "code"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(place), revision], cwd=ROOT, check=True)
        try:
            return subprocess.run([sys.executable, "-m", "tests.trips", *arguments], cwd=place).returncode
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(place)], cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run trips", description="How far a value travels through geo's files.")
    parser.add_argument("--way", metavar="TRIP", help="print a trip's way, file by file, in its room; TRIP as the table names it")
    parser.add_argument("--of", choices=("room", "value", "whole"), default="room", help="which way of it (default: room)")
    parser.add_argument("--at", metavar="REVISION", help="of the code at a commit")
    args = parser.parse_args()
    if args.at is not None:
        return _at(args.at, ["--of", args.of, *(["--way", args.way] if args.way else [])])
    trips = {trip.name: trip for trip in made()}
    if args.way is None:
        print("| trip | room | in its room: files, returns | its value: files, returns | whole: functions, files, returns |")
        print("|---|---|---|---|---|")
        print("\n".join(trip.row() for trip in trips.values()))
    elif args.way in trips:
        trip = trips[args.way]
        print("\n".join(trip.lines({"room": trip.in_room, "value": trip.of_value, "whole": trip.whole}[args.of])))
    else:
        parser.error(f"there is no trip {args.way!r}; they are {', '.join(trips)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
