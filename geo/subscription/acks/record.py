"""Records in which a state travels: the key and payload of a message of `__acks`. Versioned, compact, and strict when read.

    key      TOPIC/SUBSCRIPTION
    payload  version 1 · flags · epoch · names of clusters · base · acknowledged ranges · levels of redelivery
    of one region only: version 2 · flags · turn · length of the next · payload of version 1 [· that of the replicated one, if it is kept]

What all regions share is of version 1; programs that do not know regional subscriptions refuse version 2 as newer. Numbers are varints (LEB128). The
ranges of a ledger alternate between how many entries are left out and how many are in. So 10,000 holes take some 30 kB, and a range cannot be told
backwards. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import TypeVar

from geo.errors import GeoError
from geo.ids import ENTRY_ID_LIMIT, LEDGER_ID_LIMIT, LedgerId
from geo.names import Topic, check_cluster, check_subscription
from geo.slices import slices
from geo.subscription.acks.ack_state import MAX_REDELIVERIES, AckState, Base, Epoch, merged
from geo.subscription.acks.message_set import MessageSet
from geo.subscription.acks.ranges import Range, Ranges
from geo.subscription.acks.subscription_state import Regional, SubscriptionState

VERSION = 1
REGIONAL_VERSION = 2
"""Version of what is one region's alone, and the newest that this program reads."""

LAST_VERSION = 15
"""A payload that begins with a greater number is malformed: it would hold up every start until somebody can read it."""

MAX_BYTES = 4 * 1024 * 1024
"""Bytes of a payload, at most: below the limit of a message, and read by every cluster that shares the topic."""

MAX_EPOCH = 2**32
"""Largest epoch for which the form of a record has room. Which epoch can be at a time is decided by `fold.epoch_is_possible`."""

MAX_RANGES = 1_000_000
"""Ranges of a record, at most. A set that needs more is sent in several records, which mean the same."""

_DELETED, _BASE, _TIME, _BOTH = 1, 2, 4, 8
"""A base has a time, else floors, or both, the time first."""

_ON, _SHARED = 1, 2
"""A regional subscription is the one of its region; the payload of the replicated one follows."""

MAX_TURN = 2**32

K = TypeVar("K")
V = TypeVar("V")


class RecordRefusal(str, Enum):
    """The reason why a record changes nothing."""

    NEWER_ENCODING = "newer encoding"
    MALFORMED = "malformed"
    TOO_LARGE = "too large"
    OLDER_EPOCH = "older epoch"
    OTHER_REGION = "of another region only"


def told_refusals(refused: Mapping[RecordRefusal, int]) -> str:
    """`2 malformed, 1 too large`."""
    return ", ".join(f"{count} {why.value}" for why, count in sorted(refused.items()))


def told_unreadable(refused: Mapping[RecordRefusal, int]) -> str:
    """Words as `told_refusals`, without records that can be read, of an older epoch or of another region only; "" for nothing else."""
    return told_refusals(
        {why: n for why, n in refused.items() if why not in (RecordRefusal.OLDER_EPOCH, RecordRefusal.OTHER_REGION)}
    )


class RefusedRecordError(GeoError):
    """A record that cannot be taken. Carries the reason under which it is counted."""

    def __init__(self, reason: RecordRefusal, detail: str) -> None:
        self.reason = reason
        super().__init__(f"{reason.value}: {detail}")


def key_of(topic: Topic, subscription: str) -> str:
    return f"{topic}/{subscription}"


def parse_key(key: str) -> tuple[Topic, str]:
    """Topic and subscription. Raises RefusedRecordError."""
    topic, _, subscription = key.rpartition("/")
    try:
        return Topic.parse(topic), check_subscription(subscription)
    except GeoError as error:
        raise RefusedRecordError(RecordRefusal.MALFORMED, str(error)) from None


def is_newer(payload: object) -> bool:
    """Tells whether a payload is of a version that this program cannot read, and a newer one may. A number far from ours is no version."""
    return isinstance(payload, (bytes, bytearray)) and bool(payload) and REGIONAL_VERSION < payload[0] <= LAST_VERSION


def encode(state: AckState, *, limited: bool = True) -> bytes:
    """The payload of a record. Raises RefusedRecordError if a reader would refuse it as TOO_LARGE.

    `limited` False: for a state that does not travel, of any size.
    """
    sets = [state.acked, *state.redelivered]
    origins = {origin for one in sets for origin, _ in one.ledgers} | {origin for origin, _ in _floors(state)}
    clusters = sorted(origins)
    place = {name: at for at, name in enumerate(clusters)}
    out = bytearray([VERSION])
    flags = _DELETED * state.deleted
    if state.base is not None:
        flags |= _BASE
        if state.base.time_us is not None:
            flags |= _TIME | (_BOTH if state.base.floors else 0)
    _number(out, flags)
    _number(out, state.epoch.counter)
    _text(out, state.epoch.cluster)
    _number(out, len(clusters))
    for name in clusters:
        _text(out, name)
    if state.base is not None and state.base.time_us is not None:
        _number(out, state.base.time_us)
    if flags & _BOTH or flags & (_BASE | _TIME) == _BASE:
        _number(out, len(_floors(state)))
        for (origin, ledger_id), first in sorted(_floors(state).items()):
            for number in (place[origin], ledger_id, first):
                _number(out, number)
    _messages(out, state.acked, place)
    _number(out, len(state.redelivered))
    for level in state.redelivered:
        _messages(out, level, place)
    count = sum(one.range_count for one in sets)
    if limited and (len(out) > MAX_BYTES or count > MAX_RANGES or state.epoch.counter >= MAX_EPOCH):
        raise RefusedRecordError(RecordRefusal.TOO_LARGE, f"{len(out)} bytes, {count} ranges, epoch {state.epoch.counter}")
    return bytes(out)


def _floors(state: AckState) -> Mapping[LedgerId, int]:
    return state.base.floors if state.base is not None else {}


def _messages(out: bytearray, messages: MessageSet, place: Mapping[str, int]) -> None:
    _number(out, len(messages.ledgers))
    for (origin, ledger_id), found in sorted(messages.ledgers.items()):
        for number in (place[origin], ledger_id, len(found)):
            _number(out, number)
        end = -1
        for first, last in found:
            _number(out, first - end - 1)
            _number(out, last - first)
            end = last


def encode_all(state: SubscriptionState, *, limited: bool = True) -> bytes:
    """Encodes as `encode` all that is known: in version 1 where nothing is of one region only."""
    shared = b"" if state.replicated is None else encode(state.replicated, limited=limited)
    if state.regional is None:
        return shared or encode(AckState())
    own = encode(state.regional.state, limited=limited)
    out = bytearray([REGIONAL_VERSION])
    for number in (_ON * state.regional.on | _SHARED * bool(shared), state.regional.turn, len(own)):
        _number(out, number)
    out += own + shared
    if limited and (len(out) > MAX_BYTES or state.regional.turn >= MAX_TURN):
        raise RefusedRecordError(RecordRefusal.TOO_LARGE, f"{len(out)} bytes, turn {state.regional.turn}")
    return bytes(out)


def decode(payload: bytes, *, limited: bool = True) -> AckState:
    """The state that a payload of version 1 tells. Raises RefusedRecordError."""
    found = decode_all(payload, limited=limited)
    if found.replicated is None or found.regional is not None:
        raise RefusedRecordError(RecordRefusal.MALFORMED, f"version {payload[0]} where {VERSION} is expected")
    return found.replicated


def decode_all(payload: bytes, *, limited: bool = True) -> SubscriptionState:
    """Decodes a payload. Raises RefusedRecordError; a payload of another program changes nothing, whatever it holds."""
    if limited and len(payload) > MAX_BYTES:
        raise RefusedRecordError(RecordRefusal.TOO_LARGE, f"{len(payload)} bytes, at most {MAX_BYTES}")
    if not payload or payload[0] == 0 or payload[0] > LAST_VERSION:
        raise RefusedRecordError(RecordRefusal.MALFORMED, "it has no version")
    if is_newer(payload):
        raise RefusedRecordError(
            RecordRefusal.NEWER_ENCODING, f"version {payload[0]}, this program reads up to {REGIONAL_VERSION}"
        )
    most = MAX_RANGES if limited else len(payload)
    if payload[0] == VERSION:
        return SubscriptionState(_Reader(payload, most).state())
    reader = _Reader(payload, most)
    flags, turn, own, shared = reader.parts()
    if bool(flags & _SHARED) != bool(shared):
        raise reader.malformed("what is replicated is there and not said to be, or the other way round")
    state = decode(own, limited=limited)
    regional = Regional(turn, bool(flags & _ON), state)
    return SubscriptionState(decode(shared, limited=limited) if shared else None, regional)


def decode_epochs(payload: bytes) -> SubscriptionState:
    """Decodes only the epochs and the turn of a payload of `encode_all`, without a look at what is acknowledged."""

    def epoch_of(told: bytes) -> AckState:
        flags, epoch = _Reader(told, 0).head()
        return AckState(epoch, deleted=bool(flags & _DELETED))

    if payload[0] == VERSION:
        return SubscriptionState(epoch_of(payload))
    flags, turn, own, shared = _Reader(payload, 0).parts()
    return SubscriptionState(epoch_of(shared) if shared else None, Regional(turn, bool(flags & _ON), epoch_of(own)))


def split_all(state: SubscriptionState, most: int = 100_000) -> Iterator[SubscriptionState]:
    """Splits as `split`: records that are replicated, and records of this region only, none of which is both."""
    if state.replicated is not None:
        yield from map(SubscriptionState, split(state.replicated, most))
    if (regional := state.regional) is not None:
        for part in split(regional.state, most):
            yield SubscriptionState(regional=replace(regional, state=part))


def split(state: AckState, most: int = 100_000) -> Iterator[AckState]:
    """States of at most `most` ranges each that together mean `state`; at least one. The first has the base."""
    told = [
        (level, ledger, found[at : at + most])
        for level, messages in enumerate((state.acked, *state.redelivered))
        for ledger, found in sorted(messages.ledgers.items())
        for at in range(0, len(found), most)
    ]
    for number, part in enumerate(list(slices(told, lambda one: len(one[2]), most)) or [[]]):
        sets: list[dict[LedgerId, Ranges]] = [{} for _ in range(1 + max((level for level, *_ in part), default=0))]
        for level, ledger, piece in part:
            sets[level][ledger] = piece
        acked, *levels = map(MessageSet, sets)
        yield AckState(state.epoch, None if number else state.base, state.deleted, acked, tuple(levels))


class _Reader:
    def __init__(self, payload: bytes, ranges: int) -> None:
        self._bytes, self._at, self._ranges = payload, 1, ranges

    def head(self) -> tuple[int, Epoch]:
        flags = self.number(16)
        if flags & _BOTH and not flags & _TIME:
            raise self.malformed("a base of both without a time")
        return flags, Epoch(self.number(MAX_EPOCH), self.cluster(empty=True))

    def parts(self) -> tuple[int, int, bytes, bytes]:
        """Parts of a payload of version 2: its flags and turn, what is of one region, and what is replicated."""
        flags, turn = self.number(4), self.number(MAX_TURN, least=1)
        return flags, turn, self.inner(self.count()), self.inner()

    def state(self) -> AckState:
        flags, epoch = self.head()
        self._clusters = [self.cluster() for _ in range(self.count())]
        base = None
        if flags & (_BASE | _TIME):
            time_us = self.number(ENTRY_ID_LIMIT) if flags & _TIME else None
            has_floors = flags & _BOTH or not flags & _TIME
            base = Base(self.mapping(self.ledger, lambda: self.number(ENTRY_ID_LIMIT)) if has_floors else {}, time_us)
        acked = MessageSet(self.mapping(self.ledger, self.ranges))
        levels = self.number(MAX_REDELIVERIES + 1)
        redelivered = tuple(MessageSet(self.mapping(self.ledger, self.ranges)) for _ in range(levels))
        if self._at != len(self._bytes):
            raise self.malformed("bytes behind its end")
        # A record whose counts name what it acknowledges, or end in empty levels, means what its tidy form means.
        return merged([AckState(epoch, base, bool(flags & _DELETED), acked, redelivered)])

    def number(self, limit: int, least: int = 0) -> int:
        value = shift = 0
        while True:
            if self._at >= len(self._bytes) or shift > 63:
                raise self.malformed("it ends within a number")
            byte = self._bytes[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if not least <= value < limit:
            raise self.malformed(f"{value} is not from {least} to {limit - 1}")
        return value

    def inner(self, length: int | None = None) -> bytes:
        """The next bytes, so many or all that are left."""
        end = len(self._bytes) if length is None else self._at + length
        found, self._at = self._bytes[self._at : end], end
        return found

    def count(self) -> int:
        """Read an element count. Each element takes at least a byte, so a forged count cannot allocate more than the payload."""
        return self.number(len(self._bytes) - self._at + 1)

    def cluster(self, *, empty: bool = False) -> str:
        length = self.count()
        raw = self._bytes[self._at : self._at + length]
        self._at += length
        try:
            return raw.decode("ascii") if empty and not raw else check_cluster(raw.decode("ascii"))
        except (GeoError, UnicodeDecodeError) as error:
            raise self.malformed(str(error)) from None

    def mapping(self, key: Callable[[], K], value: Callable[[], V]) -> Mapping[K, V]:
        found: dict[K, V] = {}
        for _ in range(self.count()):
            one = key()
            if one in found:
                raise self.malformed(f"{one} is there twice")
            found[one] = value()
        return found

    def ledger(self) -> LedgerId:
        return LedgerId(self._clusters[self.number(len(self._clusters))], self.number(LEDGER_ID_LIMIT, least=1))

    def ranges(self) -> Ranges:
        found: list[Range] = []
        end = -1
        for at in range(self.number(self._ranges + 1, least=1)):
            first = end + 1 + self.number(ENTRY_ID_LIMIT, least=1 if at else 0)
            end = first + self.number(ENTRY_ID_LIMIT)
            if end >= ENTRY_ID_LIMIT:
                raise self.malformed(f"a range up to {end}")
            found.append((first, end))
        self._ranges -= len(found)
        return tuple(found)

    def malformed(self, what: str) -> RefusedRecordError:
        return RefusedRecordError(RecordRefusal.MALFORMED, f"{what}, at byte {self._at} of {len(self._bytes)}")


def _number(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _text(out: bytearray, value: str) -> None:
    _number(out, len(value))
    out += value.encode("ascii")
