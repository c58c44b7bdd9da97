"""The set-ups: how each is broken, and since when; what must be told of it; how it is mended, by what is told."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from geo.fleet.health_events import HealthEvents
from geo.journal.events import events_of, flush_all
from geo.locations import authority_of
from geo.ops.health import SAMPLES
from geo.reasons import Reason
from tests.broken.owner import Owner, owner
from tests.broken.place import TOPIC, Place, Said
from tests.clock_off import clock_off
from tests.object_store import KEY

Broken = Iterator[float]
"""Of a set-up that is broken while it is open: since when, in seconds since 1970."""

FORGOTTEN = timedelta(days=3)
SECRET = "spark_conf: {fs.x.key: 'secret://env/GEO_BROKEN_KEY'}, "
OFF_S = 400.0
LINK = f"us->eu, {TOPIC}"
LOOKED_S = 60.0 * (SAMPLES + 1)
"""So long a link is looked at before it is told whether it moves."""
SOON_S = 60.0
"""What is older than REPLICA_LAG_MAX_S is late."""

FOLLOWS_S = 60.0

DOCTOR, EXPLAIN, LINKS, STATUS = "doctor", "explain", "links status", "status"


@dataclass(frozen=True)
class Told:
    """What one screen is to tell: of which subject, its cause, and a pattern of its fix."""

    where: str
    code: Reason
    fix: str


Tells = Mapping[str, Told]
"""By screen."""


# -- who notes it as an event, which names the same -------------------------------------------------------------


def by_a_pass(place: Place) -> None:
    """Who is to run links looks before he does, and once he has; whatever becomes of it."""
    place.geo("replicate", "--cluster", "eu")
    flush_all(FOLLOWS_S)  # as its process does that ends


def by_its_broker(place: Place) -> None:
    """The broker of eu looks each minute; this process is it."""
    config, of_link = place.far.config, {("us", TOPIC)}
    health = HealthEvents("eu", events_of(place.far.tables("eu")), lambda line: None)
    health.look(config, of_link)
    health.wait(FOLLOWS_S)
    flush_all(FOLLOWS_S)


def _noted_at_once(place: Place) -> None:
    """It was noted when it was broken."""


@dataclass(frozen=True)
class SetUp:
    """`make` breaks what went well, and ends what it began. `tells`: what each screen tells of it; `links status` and `explain` tell of links alone. `noted`: who
    notes it; None: who types what is told. `mend` does what was told (a fix); afterwards no screen has a finding. Without it what ends `make` mends it,
    and a pass of the links."""

    name: str
    make: Callable[[Place], Broken]
    tells: Tells
    mend: Callable[[Place, str], None] | None = None
    noted: Callable[[Place], None] | None = by_a_pass
    is_asked: bool = False
    """What is typed asks who runs the link for something, which is done when `make` ends."""
    on_s3: Tells | None = None
    """What is told there, where that is another matter."""


def _of_link(code: Reason, fix: str) -> Tells:
    link = Told(LINK, code, fix)
    return {DOCTOR: Told(f"link {LINK}", code, fix), EXPLAIN: link, LINKS: link, STATUS: link}


def _of_region(code: Reason, fix: str) -> Tells:
    link, region = Told(LINK, code, fix), Told("cluster us", code, fix)
    return {DOCTOR: region, EXPLAIN: link, LINKS: link, STATUS: region}


def _of_place(where: str, code: Reason, fix: str) -> Tells:
    return {DOCTOR: Told(f"cluster {where}", code, fix), STATUS: Told(f"cluster {where}", code, fix)}


# -- mending: what was told ------------------------------------------------------------------------------------


_BESIDE = {"broker": ["--trigger", "available-now"], "rebuild": ["--yes"]}
"""What a program says beside the verb that people are told: a terminal would ask."""

_VERB = re.compile(r"geo ((?:links|reconcile|rebuild|broker|replicate)\b.*?)(?= \(|, |; |\. |$)")


def _types(place: Place, fix: str, typed: Callable[[Sequence[str]], Said] | None = None) -> None:
    """The verb that is told is typed as it stands there, and the links run once more, as their brokers let them."""
    found = _VERB.search(fix)
    assert found is not None, fix
    words = shlex.split(found[1])
    said = (typed or place.typed)([*words, *_BESIDE.get(words[0], ())])
    assert said.code == 0, f"{found[0]}: {said.code}\n{said.text}"
    place.replicate()


def _asks(place: Place, fix: str) -> None:
    """The verb that is told is typed; who runs the link follows it."""
    said = place.typed(shlex.split(fix)[1:])
    assert said.code == 0, f"{fix}: {said.code}\n{said.text}"


def _rebuilds(place: Place, fix: str) -> None:
    """In a process of its own: this one remembers the registry that is gone."""
    _types(place, fix, place.typed_anew)


def _types_in_shell(place: Place, fix: str) -> None:
    """What is told that is no verb of this program."""
    found = re.search(r"kill -CONT [\d ]+", fix)
    assert found is not None, fix
    subprocess.run(shlex.split(found[0]), check=True)


def _puts_back(place: Place, fix: str) -> None:
    """The links go on by themselves."""
    place.put_back()
    place.replicate()


# -- the set-ups ----------------------------------------------------------------------------------------------


def _wrong_name(place: Place) -> Broken:
    place.rewrite(
        lambda text: re.sub(r"\bus: \{", "ap: {", text).replace("source: us", "source: ap").replace("target: us", "target: ap")
    )
    yield time.time()


def _names_right(place: Place, fix: str) -> None:
    place.rewrite(
        lambda text: re.sub(r"\bap: \{", "us: {", text).replace("source: ap", "source: us").replace("target: ap", "target: us")
    )


def _moved_away(what: str) -> Callable[[Place], Broken]:
    def make(place: Place) -> Broken:
        place.move_away(what)
        yield time.time()

    return make


def _registry_emptied(place: Place) -> Broken:
    place.empty_registry()
    yield time.time()


def _expired_reference(place: Place) -> Broken:
    """On S3 the store refuses the keys; on a disk the reference leads nowhere."""
    if place.s3 is not None:
        place.s3.refuse("ExpiredToken", 400, bucket=authority_of(place.roots["us"]))
    else:
        place.rewrite(lambda text: text.replace("root: ", f"{SECRET}root: ", 1))
    try:
        yield time.time()
    finally:
        if place.s3 is not None:
            place.s3.refuse()
        else:
            place.rewrite(lambda text: text.replace(SECRET, ""))
        os.environ.pop("GEO_BROKEN_KEY", None)


def _renews(place: Place, fix: str) -> None:
    if place.s3 is not None:
        place.s3.refuse()
    os.environ["GEO_BROKEN_KEY"] = KEY


def _lagging(place: Place) -> Broken:
    """Each minute more comes than the last that is brought, by who runs the link, which is this process."""
    count, one = 10, Owner(place.far, TOPIC)
    for minute in range(SAMPLES + 1):
        with place.later(60.0 * minute):
            one.bring()
            began, more = time.time(), 10 * (minute + 1)  # what it lacked before it has brought
            count += more
            place.publish(count if place.s3 is not None else more)
    with place.later(60.0 * SAMPLES + 30):
        yield began
        one.bring()
        one.end()


def _stalled(place: Place) -> Broken:
    with owner(place.path, TOPIC) as process:
        began = time.time()
        place.publish(20)
        with place.later(LOOKED_S):
            yield began
        _assert_restarted(process)


def _failed(place: Place) -> Broken:
    """The source's log is dropped and made again."""
    place.remove_log("us")
    place.publish(5)
    began = time.time()
    place.replicate("eu")
    yield began


def _left_out(place: Place) -> Broken:
    """A link passed rows that no producer can have written: their times are those of no message."""
    place.forge(3)
    began = time.time()
    place.replicate("eu")
    yield began


def _forgotten(place: Place) -> Broken:
    """Somebody paused it days ago; who runs it followed that."""
    began = time.time()
    said = place.geo("links", "pause", "--source", "us", "--target", "eu", "--topic", str(TOPIC))
    assert said.code == 0, said.text
    place.replicate("eu")
    with place.later(FORGOTTEN.total_seconds()):
        yield began


def _no_broker(place: Place) -> Broken:
    with owner(place.path, TOPIC, broker=True) as process:
        began = time.time()
        process.kill()
        process.wait()
        place.publish(20)
        with place.later(SOON_S):
            yield began


def _halted(place: Place) -> Broken:
    with owner(place.path, TOPIC) as process:
        process.send_signal(signal.SIGSTOP)
        began = time.time()
        place.publish(20)
        with place.later(SOON_S):
            yield began


def _stale_cursor(place: Place) -> Broken:
    """An older copy of the target's log is put back."""
    older = place.older_log("eu")
    place.publish(15)
    place.replicate("eu")
    with owner(place.path, TOPIC) as process:
        began = time.time()
        place.replace_log("eu", older)
        by_a_pass(place)
        with place.later(LOOKED_S):
            yield began
        _assert_restarted(process)


def _assert_restarted(process: subprocess.Popen[str]) -> None:
    """Who runs the link follows what was asked of it, and brings what there is."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], FOLLOWS_S)[0]
    assert process.stdout.readline() == "restarted\n"


def _foreign_schema(place: Place) -> Broken:
    place.publish(20)
    place.set_property("us", "geo.schema.version", "99")
    began = time.time()
    place.replicate("eu")
    yield began


def _moves_table(place: Place, fix: str) -> None:
    place.set_property("us", "geo.schema.version", "2")
    _types(place, fix, place.typed_anew)


def _second_process(place: Place) -> Broken:
    """Who runs the link lives elsewhere, and a second process is to run it, again and again."""
    with owner(place.path, TOPIC, "elsewhere"):
        began = time.time()
        place.geo("replicate", "--cluster", "eu")
        flush_all(FOLLOWS_S)
        said = place.geo("replicate", "--cluster", "eu")
        assert (said.code, "already run by process" in said.text) == (3, True), said.text
        yield began


def _short_retention(place: Place) -> Broken:
    place.set_property("us", "delta.deletedFileRetentionDuration", "interval 1 hour")
    yield time.time()


def _alters(place: Place, fix: str) -> None:
    """As Spark's SQL does it."""
    found = re.search(r"ALTER TABLE \S+ SET TBLPROPERTIES \('(\S+)' = '([^']+)'\)", fix)
    assert found is not None, fix
    place.set_property("us", found[1], found[2])


def _clock_off(place: Place) -> Broken:
    began = time.time()
    with clock_off(OFF_S):
        yield began


SET_UPS = (
    SetUp("wrong name", _wrong_name, _of_place("ap", Reason.MISNAMED, "Name it us"), _names_right),
    SetUp("missing table", _moved_away(f"topics/{TOPIC.path}"), _of_link(Reason.SOURCE_GONE, "Put it back"), _puts_back),
    SetUp("folder gone", _moved_away(""), _of_region(Reason.SOURCE_GONE, "Put its folder back"), _puts_back),
    SetUp(
        "registry emptied",
        _registry_emptied,
        _of_region(Reason.REGISTRY_EMPTY, "geo rebuild .*--cluster us --from eu"),
        _rebuilds,
    ),
    SetUp(
        "expired reference",
        _expired_reference,
        _of_place("us", Reason.KEYS_REFUSED, "set it where this runs"),
        _renews,
        on_s3=_of_region(Reason.KEYS_REFUSED, "renew the credential"),
    ),
    SetUp("lagging", _lagging, _of_link(Reason.GROWING, "num_fetchers"), noted=by_its_broker),
    SetUp("stalled", _stalled, _of_link(Reason.NOT_MOVING, "geo links restart"), _asks, is_asked=True),
    SetUp("failed", _failed, _of_link(Reason.SOURCE_RECREATED, "geo links resolve"), _types),
    SetUp("rows left out", _left_out, _of_link(Reason.IMPOSSIBLE_ROWS, "geo reconcile"), _types),
    SetUp("paused and forgotten", _forgotten, _of_link(Reason.ASKED_TO_PAUSE, "geo links resume"), _types),
    SetUp("no broker", _no_broker, _of_link(Reason.NO_OWNER, "geo broker .*--cluster eu"), _types, noted=None),
    SetUp("halted", _halted, _of_link(Reason.OWNER_SILENT, "kill -CONT"), _types_in_shell),
    SetUp(
        "stale cursor",
        _stale_cursor,
        _of_link(Reason.STALE_CURSOR, "geo links restart"),
        _asks,
        noted=_noted_at_once,
        is_asked=True,
    ),
    SetUp("foreign schema", _foreign_schema, _of_link(Reason.SCHEMA, "upgrade delta-geo"), _moves_table),
    SetUp(
        "second process",
        _second_process,
        _of_place("eu", Reason.OWNED_ELSEWHERE, "geo replicate .*--cluster eu --take-over"),
        _types,
    ),
    SetUp("short retention", _short_retention, _of_place(f"us, {TOPIC}", Reason.SHORT_RETENTION, "ALTER TABLE"), _alters),
    SetUp(
        "clock 400 s off",
        _clock_off,
        {
            DOCTOR: Told("cluster us", Reason.CLOCK, "set this host's clock"),
            STATUS: Told("this host", Reason.CLOCK, "set this host's clock"),
        },
    ),
)
