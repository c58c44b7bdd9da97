"""The names of topics, clusters and producers: their grammar, and the encoding that makes paths and tables of them.

The grammar, here and nowhere else. All of it is ASCII, so no two names look alike, and sorting is the same everywhere.
- A topic is `persistent://tenant/namespace/name`. Each of the three parts has the characters Pulsar allows in a tenant:
  letters, digits and `_ - . : =`. It starts with a letter, a digit or `_`; it has no `..`. It is no device name of
  Windows (`con`, `nul`, `com1`, ...: a folder of that name cannot be made there).
- Clusters, producers and subscriptions stand unencoded in paths, property keys, message ids (`eu:7:42`). So they have lower-case letters, digits, `_`
and `-`, and start with a letter or a digit.
- A topic glob is a topic in which `*` and `?` stand for any and for one character of a part.

Nothing here touches a path or a table; it only says what they are called.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import lru_cache, partial

from geo.errors import InvalidNameError
from geo.text import show

SCHEME = "persistent://"
ALL_TOPICS = f"{SCHEME}*/*/*"
PARTS = ("tenant", "namespace", "name")
ACKS = "__acks"
"""Name of the topic of a namespace that carries the acknowledgements of its subscriptions."""

DEAD_LETTERS = "-DLQ"
"""End of the name of a dead letter topic, as in Pulsar."""

# A part is a folder, file systems end at 255 bytes, and the longest encoding (upper case) takes 3 for a character.
MAX_PART = 85
# Unity Catalog's limit of an identifier. The path is never longer, so it leaves most of S3's 1,024 to the root.
MAX_TABLE_NAME = 255
# A cluster stands in every row, and the two of them, or a producer and a topic, in one property key.
MAX_LABEL = 64

_LOWER, _DIGITS = string.ascii_lowercase, string.digits
_DEVICE = re.compile(r"(con|prn|aux|nul|(com|lpt)[0-9])(\.|\Z)")
_PARTITION = re.compile(r".+-partition-(0|[1-9][0-9]{0,8})\Z")


@dataclass(frozen=True, slots=True)
class _Grammar:
    """Rules for one part of a name. `fault` says what is wrong with a text, or None."""

    allowed: str
    first: frozenset[str]
    rest: frozenset[str]
    longest: int

    def check_parts(self, kind: str, whole: object, parts: Iterable[str]) -> None:
        """Raises InvalidNameError for a part of the whole that is outside."""
        for what, part in zip(PARTS, parts, strict=False):
            if fault := self.fault(part):
                raise InvalidNameError(f"{kind} {show(str(whole))}: its {what} {show(part)} {fault}; allowed: {self.allowed}")

    def fault(self, text: object) -> str | None:
        if not isinstance(text, str):
            return f"is {type(text).__name__}, not text"
        if not text:
            return "is empty"
        if len(text) > self.longest:
            return f"has {len(text)} characters"
        for at, character in enumerate(text):
            if character not in (self.rest if at else self.first):
                return f"has {show(character)} as character {at + 1}"
        if ".." in text:
            return "has '..'"
        return "is a device name of Windows" if _DEVICE.match(text) else None


_PART_CHARACTERS = frozenset(string.ascii_letters + _DIGITS + "_-.:=")
_PART = _Grammar(
    f"ASCII letters, digits and _ - . : =, a letter, digit or _ first, no '..', 1 to {MAX_PART} characters",
    frozenset(string.ascii_letters + _DIGITS + "_"),
    _PART_CHARACTERS,
    MAX_PART,
)
_GLOB = _Grammar(f"{_PART.allowed}; and * and ?", _PART.first | set("*?"), _PART.rest | set("*?"), MAX_PART)
_LABEL = _Grammar(
    f"lower-case ASCII letters, digits, _ and -, a letter or digit first, 1 to {MAX_LABEL} characters",
    frozenset(_LOWER + _DIGITS),
    frozenset(_LOWER + _DIGITS + "_-"),
    MAX_LABEL,
)

# Escapes are `_` and a digit, so that a plain `_` before a letter, the usual case, can stay. Encoded parts therefore
# hold no `__` and never end in `_`, which makes `__` between two of them unmistakable. They hold no upper case, because
# catalogs and some file systems fold it. `:` is illegal in HDFS, `=` would read as a partition folder, and Windows
# drops a `.` at the end.
_CODES = {"_": "_0", "-": "_1", ".": "_2", ":": "_3", "=": "_4"} | {c.upper(): f"_5{c}" for c in _LOWER}
_CHARACTERS = {code: character for character, code in _CODES.items()}
_ESCAPED_IN_TABLE = re.compile(r"^_|_(?![a-z])|[-.:=A-Z]")
_ESCAPED_IN_PATH = re.compile(r"^_|_(?![a-z])|[:=A-Z]|\.\Z")
_CODE = re.compile(r"_5[a-z]|_[0-4]")


@dataclass(frozen=True, slots=True, order=True)
class Topic:
    """The name of a topic. Whoever holds one holds a name inside the grammar, whose path and table name are its own.

    Raises InvalidNameError.
    """

    tenant: str
    namespace: str
    name: str

    def __post_init__(self) -> None:
        _PART.check_parts("topic", self, self._parts)
        if len(self.table_name) > MAX_TABLE_NAME:
            raise InvalidNameError(
                f"topic {self}: its table name would have {len(self.table_name)} characters; allowed: {MAX_TABLE_NAME}"
                " (an upper-case letter takes 3, each of - . : = takes 2)"
            )

    def __str__(self) -> str:
        return f"{SCHEME}{self.tenant}/{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Topic:
        """The topic of `persistent://tenant/namespace/name`; the inverse of `str`. Raises InvalidNameError."""
        return cls(*_split("topic", text))

    @classmethod
    def of(cls, topic: str | Topic) -> Topic:
        """The topic, or that of the name. Raises InvalidNameError, also for what is neither."""
        if not isinstance(topic, (str, Topic)):
            raise InvalidNameError(f"expected a topic or its name, and not what a {type(topic).__name__} is")
        return topic if isinstance(topic, Topic) else cls.parse(topic)

    @classmethod
    def from_path(cls, path: str) -> Topic:
        """The inverse of `path`; anything `path` would not have made raises InvalidNameError."""
        parts = path.split("/")
        if len(parts) == len(PARTS) and (topic := cls(*map(_decode, parts))).path == path:
            return topic
        raise InvalidNameError(f"{show(path)} is no path of a topic; expected: encoded tenant/namespace/name")

    @property
    def _parts(self) -> tuple[str, str, str]:
        return self.tenant, self.namespace, self.name

    @property
    def path(self) -> str:
        """`tenant/namespace/name`, relative and injective, even where case is folded; of the characters a-z 0-9 _ - .

        `persistent://shop/eu/order_events.v1` is `shop/eu/order_events.v1`; `Orders` is `_5orders`.
        """
        return "/".join(_ESCAPED_IN_PATH.sub(_code, part) for part in self._parts)

    @property
    def table_name(self) -> str:
        """`tenant__namespace__name`, injective even where case is folded; of the characters a-z 0-9 _ only.

        It always has two `__`, so a table without cannot be a topic's. It may start with a digit: quote it in SQL.
        """
        return "__".join(_ESCAPED_IN_TABLE.sub(_code, part) for part in self._parts)

    @property
    def partition(self) -> int | None:
        """N of a name that ends in `-partition-N`, else None."""
        found = _PARTITION.match(self.name)
        return int(found[1]) if found else None

    @property
    def partitioned(self) -> Topic | None:
        """The partitioned topic of which this is a partition, else None."""
        return None if self.partition is None else Topic(self.tenant, self.namespace, self.name.rpartition("-partition-")[0])

    def with_partition(self, number: int) -> Topic:
        """Partition `number` of the partitioned topic of this name."""
        return Topic(self.tenant, self.namespace, f"{self.name}-partition-{number}")

    @property
    def is_system(self) -> bool:
        """Tells whether the name starts with `__`: the topic carries what this package writes, not messages of users."""
        return self.name.startswith("__")

    @property
    def dead_letter_depth(self) -> int:
        """0 of a topic, 1 of a dead letter topic, 2 of the dead letter topic of one, and so on."""
        return self.name.count(DEAD_LETTERS) if self.name.endswith(DEAD_LETTERS) else 0

    @property
    def acks(self) -> Topic:
        """The topic that carries the acknowledgements of this namespace."""
        return Topic(self.tenant, self.namespace, ACKS)


DEFAULT_PRODUCER = "default"
MARKERS_PRODUCER = "geo-markers"
"""The one who writes the markers of version subscriptions into a topic; nobody else publishes under this name."""


def _check_label(what: str, name: str) -> str:
    if fault := _LABEL.fault(name):
        raise InvalidNameError(f"{what} {show(name)} {fault}; allowed: {_LABEL.allowed}")
    return name


check_append = partial(_check_label, "append")
check_broker = partial(_check_label, "broker")
check_cluster = partial(_check_label, "cluster")
check_producer = partial(_check_label, "producer")
check_subscription = partial(_check_label, "subscription")
"""Each returns the name itself, when it is one that such a thing may have. Raises InvalidNameError."""


def check_namespace(name: str) -> str:
    """The name itself, when it is `tenant/namespace`. Raises InvalidNameError."""
    parts = name.split("/")
    if len(parts) != len(PARTS) - 1:
        raise InvalidNameError(f"namespace {show(name)} is not of the form tenant/namespace")
    _PART.check_parts("namespace", name, parts)
    return name


def check_user_producer(name: str) -> str:
    """Checks as `check_producer` the name of a producer that is not delta-geo itself."""
    if name == MARKERS_PRODUCER:
        raise InvalidNameError(f"producer {name} is delta-geo itself, which writes markers under this name; choose another one")
    return check_producer(name)


def check_topic_glob(glob: str) -> str:
    """The glob itself, when it is one. `flights*` alone is none: it does not say of which tenant and namespace."""
    _glob_parts(glob)
    return glob


def is_glob(text: str) -> bool:
    """Tells whether the text stands for topics by a pattern of their names, and not for one topic."""
    return not {"*", "?"}.isdisjoint(text)


def topic_glob_matches(glob: str, topic: Topic) -> bool:
    """Tells whether the glob stands for the whole topic; `*` and `?` never reach over a `/`. Raises InvalidNameError."""
    # fnmatch never goes back over a `*` it has passed, so that no glob takes exponential time; without `[`, which the
    # grammar has not, its patterns are exactly ours.
    return all(map(fnmatchcase, (topic.tenant, topic.namespace, topic.name), _glob_parts(glob)))


def glob_of(text: str, known: Collection[Topic]) -> str:
    """Derives the glob of a name that a person gives: a glob is itself. A name of which only partitions are `known` stands for all of these. Raises
    InvalidNameError for neither.
    """
    if is_glob(text):
        return check_topic_glob(text)
    topic, parts = Topic.parse(text), {one.partitioned for one in known}
    return str(topic) if topic in known or topic not in parts else f"{topic}-partition-*"


_NEAR = 0.8
"""Least nearness of two names (difflib): topics of one namespace have most of theirs in common."""


def nearest_topic(topic: Topic, known: Iterable[Topic]) -> str:
    """`; did you mean …?` when a known topic is near, or one of which partitions are known; else the full stop of a sentence."""
    named = {whole for one in known for whole in (one, one.partitioned) if whole is not None}
    names = {str(one).removeprefix(SCHEME): one for one in sorted(named)}
    near = get_close_matches(str(topic).removeprefix(SCHEME), names, n=1, cutoff=_NEAR)
    return f"; did you mean {names[near[0]]}?" if near else "."


def namespace_glob_matches(glob: str, topic: Topic) -> bool:
    """Tells whether the glob stands for topics of the topic's namespace. Raises InvalidNameError."""
    return all(map(fnmatchcase, (topic.tenant, topic.namespace), _glob_parts(glob)))


def glob_names_system_topics(glob: str) -> bool:
    """Tells whether the glob is about system topics on purpose: its name starts with `__`. Raises InvalidNameError."""
    return _glob_parts(glob)[-1].startswith("__")


def glob_takes(glob: str, topic: Topic) -> bool:
    """Tells whether a consumer of the glob reads the topic. It reads dead letter topics only if the glob's name says `-DLQ`, and of these no dead
    letter topics again unless it says so twice. Else two consumers would feed each other without end. System topics are read by no glob. Raises
    InvalidNameError.
    """
    named = _glob_parts(glob)[-1].count(DEAD_LETTERS)
    return not topic.is_system and topic.dead_letter_depth <= named and topic_glob_matches(glob, topic)


@lru_cache(maxsize=1024)
def _glob_parts(glob: str) -> tuple[str, ...]:
    parts = _split("topic glob", glob)
    _GLOB.check_parts("topic glob", glob, parts)
    return parts


def _split(what: str, text: str) -> tuple[str, ...]:
    parts = tuple(text.removeprefix(SCHEME).split("/")) if text.startswith(SCHEME) else ()
    if len(parts) != len(PARTS):
        raise InvalidNameError(f"{what} {show(text)} is not of the form {SCHEME}tenant/namespace/name")
    return parts


def _code(found: re.Match[str]) -> str:
    return _CODES[found[0]]


def _decode(part: str) -> str:
    return _CODE.sub(lambda found: _CHARACTERS[found[0]], part)
