"""Names that the shell may put behind an option: clusters and links, of the configuration. Topics and subscriptions, of a small file that is made
again beside the answer. Who asks has an answer at once, without Spark, and no store is waited for.

    python -m geo.cli.completion FILE        makes that file of a configuration's clusters
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from geo.cli.verbs import spelled
from geo.config import load
from geo.config.found import find
from geo.config.model import Config
from geo.errors import GeoError
from geo.names import Topic
from geo.now import now_us

FRESH_S = 10.0
"""Age of names above which they are read again, while those of before are shown."""


class NameOf(Enum):
    """Kind of thing that a name is of."""

    CLUSTER, SOURCE, TARGET, TOPIC, SUBSCRIPTION = range(5)


_OPTIONS = {
    "--cluster": NameOf.CLUSTER,
    "--continue-from": NameOf.CLUSTER,
    "--source": NameOf.SOURCE,
    "--target": NameOf.TARGET,
    "--topic": NameOf.TOPIC,
    "--subscription": NameOf.SUBSCRIPTION,
}
_OF_VERB = {("failover", "--from"): NameOf.CLUSTER, ("failover", "--to"): NameOf.CLUSTER, ("rebuild", "--from"): NameOf.CLUSTER}
_ARGUMENTS = {("explain",): NameOf.TOPIC, ("topics", "describe"): NameOf.TOPIC, ("clusters", "remove"): NameOf.CLUSTER}
"""Names that follow these verbs, beside options and their values."""


def asked(words: Sequence[str]) -> NameOf | None:
    """Finds the kind of name that may stand behind these words (without `geo`). None: no name may."""
    words = spelled(words) if len(words) > 1 else words
    last = words[-1] if words else ""
    if last.startswith("-"):
        return _OF_VERB.get((words[0], last), _OPTIONS.get(last))
    for verb, what in _ARGUMENTS.items():
        rest = words[len(verb) :]
        if tuple(words[: len(verb)]) == verb and len(rest) % 2 == 0 and all(one.startswith("-") for one in rest[::2]):
            return what
    return None


def names(what: NameOf, words: Sequence[str]) -> list[str]:
    """The names that may stand behind these words; none where no configuration can be read."""
    given = {option: value for option, value in pairwise(words) if option.startswith("--")}
    with suppress(GeoError, OSError):
        path = find(os.path.expanduser(given["--config"]) if "--config" in given else None).path
        config = load(path)
        if what in (NameOf.TOPIC, NameOf.SUBSCRIPTION):
            topics = _noted(path)
            return sorted(topics) if what is NameOf.TOPIC else _subscriptions(topics, given.get("--topic"))
        return list(_clusters(config, what, given))
    return []


def _clusters(config: Config, what: NameOf, given: Mapping[str, str]) -> Iterable[str]:
    """Those of links: where one end is given the other ends of its links."""
    if what is NameOf.SOURCE:
        return dict.fromkeys(link.source for link in config.links if given.get("--target", link.target) == link.target)
    if what is NameOf.TARGET:
        return dict.fromkeys(link.target for link in config.links if given.get("--source", link.source) == link.source)
    return config.clusters


def _subscriptions(topics: Mapping[str, Sequence[str]], topic: str | None) -> list[str]:
    """Those of a topic, if one is named that is known, else of all."""
    return sorted({name for of in ([topic] if topic in topics else topics) for name in topics[str(of)]})


# -- what only tables tell -------------------------------------------------------------------------------------------


def _place(path: str) -> Path:
    """Tells where the names of a configuration's topics and subscriptions are noted."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "delta-geo" / "names" / f"{hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:16]}.json"


def _noted(path: str) -> dict[str, list[str]]:
    """The subscriptions of each topic as they were noted last; nothing yet when somebody first asks."""
    place, found = _place(path), dict[str, list[str]]()
    age_s = float("inf")
    with suppress(OSError, ValueError):
        age_s = now_us() / 1e6 - place.stat().st_mtime
        found = json.loads(place.read_text(encoding="utf-8"))
    if not 0 <= age_s < FRESH_S:
        command = [sys.executable, "-m", "geo.cli.completion", os.path.abspath(path)]
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
    return found


def note(path: str) -> None:
    """Note the names of a configuration's topics and subscriptions, those of clusters that can be read without Spark; not while another process
    does."""
    place = _place(path)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(place.with_suffix(".lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        fresh = place.with_suffix(".part")
        fresh.write_text(json.dumps(_read(path)), encoding="utf-8")
        fresh.replace(place)


def _read(path: str) -> dict[str, list[str]]:
    from geo.cli.running import LookedAt
    from geo.journal.cluster import ClusterTables
    from geo.log.topics import registered_topics
    from geo.subscription.status import subscriptions_in
    from geo.subscription.versions.version_subscriptions import version_subscriptions

    found: dict[str, set[str]] = {}

    def read(tables: ClusterTables) -> list[tuple[str, str | None]]:
        topics = [(str(one.topic), None) for one in registered_topics(tables) if not one.topic.is_system]
        of_messages = [(str(one.topic), one.subscription) for one in subscriptions_in(tables) if not one.deleted]
        return [*topics, *of_messages, *((str(one.topic), one.subscription) for one in version_subscriptions(tables))]

    told, _ = LookedAt("geo completion", load(path), "native").read_each(read, alone=True)
    for topic, subscription in told:
        for one in filter(None, (topic, Topic.parse(topic).partitioned)):
            found.setdefault(str(one), set()).update([subscription] if subscription is not None else [])
    return {topic: sorted(of) for topic, of in found.items()}


def complete(parser: Callable[[str | None], Any]) -> None:
    """Tell the shell what may follow what was typed, and exit. `parser`: of a noun, which tells verbs and options."""
    import argparse

    import argcomplete
    from argcomplete.lexers import split_line

    _, typed, _, words, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    of = None if typed.startswith("-") else asked(words[1:])
    if of is None:
        argcomplete.autocomplete(parser(words[1] if len(words) > 1 else None))
        return
    found = names(of, words[1:])
    small = argparse.ArgumentParser(prog="geo", add_help=False)
    actions = [small.add_argument("words", nargs="*")]
    if words[-1].startswith("-"):
        actions.append(small.add_argument(words[-1]))
    for action in actions:
        action.completer = lambda **_: found  # type: ignore[attr-defined]  # argcomplete's way
    argcomplete.autocomplete(small)


if __name__ == "__main__":
    note(sys.argv[1])
