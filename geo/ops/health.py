"""Health of a link's topic, or of a cluster: one word for each, what it is judged by, and what a person does about it. Pure: no Spark, clock or I/O.

The lag of a link, and its age, tell nothing by themselves: judged is how it moved. (The rules are Burrow's, for cursors of ours.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from geo.coordination.claims import Liveness
from geo.coordination.holder import Holder
from geo.ops.lag_history import Sample
from geo.reasons import Level, Reason, Wrong
from geo.replication.lag import Lag
from geo.streams.life import State
from geo.text import counted, lasting

PAUSED_LONG_US = 24 * 3600 * 1_000_000
"""The one who paused something for longer has forgotten it."""


class Health(str, Enum):
    """Health of a thing. Worst first."""

    AWAY = "AWAY"
    """Others' tables mention it, and it is not there; or it does not answer, so nothing is known of it."""
    FAILED = "FAILED"
    """It has stopped, and goes on only once a person has acted."""
    REWOUND = "REWOUND"
    """The target holds less of the source than it did, or the source ends before what was read of it."""
    NO_BROKER = "NO_BROKER"
    """There is work in a cluster, and no process runs anything there, though one did."""
    STOPPED = "STOPPED"
    """There is work, and nobody owns it."""
    STALLED = "STALLED"
    """Somebody owns it, the source moved, the cursor did not."""
    BEHIND = "BEHIND"
    """The cursor moves, and never reached the end of the source nor came nearer to it; or it has passed rows that will never cross."""
    AT_RISK = "AT_RISK"
    """It goes on now. It will stop, or something is lost, unless a person acts."""
    PAUSED = "PAUSED"
    """A person, or a policy, wants it to rest."""
    CATCHING_UP = "CATCHING_UP"
    """It lacks something, and comes nearer; or what it lacks has just come."""
    OK = "OK"
    """The target holds all there is, or did a moment ago."""

    @property
    def rank(self) -> int:
        """The place in that order: 0 is the worst."""
        return list(Health).index(self)


_WARNS = (Health.BEHIND, Health.PAUSED)
_FINE = (Health.OK, Health.CATCHING_UP)


@dataclass(frozen=True, slots=True)
class Finding:
    """Health of one thing.

    `subject`: what it is, as it is shown: a topic of a link, or a cluster. `since_us`: since when it has been so, in microseconds since 1970, by the clock of
    who says so; None: nobody knows. `code` and `reason` (a sentence): why; None and empty where there is nothing to say. `do`: the verb to type, whole, or
    what else a person does; None: nothing.
    """

    subject: str
    link: str | None
    topic: str | None
    health: Health
    since_us: int | None
    code: Reason | None
    reason: str
    do: str | None
    there_us: int | None = None
    """Time when a thing that is AWAY was there last, as far as is known."""

    @property
    def shown(self) -> str:
        """Name of the thing, with its link."""
        return self.subject if self.link is None else f"{self.link} {self.subject}"

    def is_problem(self, now_us: int) -> bool:
        """Tells whether a person has to do something. A rest that somebody wanted is a problem after a day, and if nobody knows for how long it has been."""
        if self.health is Health.PAUSED:
            return self.since_us is None or now_us - self.since_us > PAUSED_LONG_US
        return self.health not in _FINE

    @property
    def level(self) -> Level:
        """Severity, if it is a problem."""
        is_waited_for = self.health in _WARNS and self.code not in (Reason.LAG_LIMIT, Reason.IMPOSSIBLE_ROWS)
        return "ok" if self.health in _FINE else "warn" if is_waited_for else "error"


SAMPLES, APART_US = 10, 60 * 1_000_000
"""Looks into the history of its commits by which a link is judged, a minute apart, the last of now. As many as Burrow takes. (A turn that takes as
long hangs.)"""

_WINDOW_US = (SAMPLES - 1) * APART_US

_GRACE = 1.5
"""So many times as long as what runs by a schedule rests it may rest before it is missed. A run may begin late, and takes a while."""


@dataclass(frozen=True, slots=True)
class LinkNow:
    """A topic of a link as the tables have it now.

    `state`, `reason`, `code`, `since_us`: of its row, and whether it was asked to pause. `lag` None: its source cannot be read. `away`: why that, or the
    target, is not there or cannot be read. `rewound`: why the source is not the one that was read; STALE_CURSOR: the target is not the one that was written.
    `stale`: why its next start compares both logs, though it has a cursor. `unbegun`: it has never run, and begins at the end of what there is. `left_out`:
    rows that no producer can have written, which it left out and nobody has accepted, and since when there are some; None: nobody knows.
    """

    source: str
    target: str
    topic: str
    state: State
    reason: str | None = None
    code: Reason | None = None
    since_us: int | None = None
    lag: Lag | None = None
    away: Wrong | None = None
    rewound: Reason | None = None
    stale: str | None = None
    unbegun: bool = False
    left_out: int | None = 0
    left_out_since_us: int | None = None

    @property
    def link(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def ends(self) -> str:
        """Options of a verb that is about this topic of the link."""
        return f"--source {self.source} --target {self.target} --topic {self.topic}"

    def finding(self, health: Health, since_us: int | None, code: Reason | None, reason: str, do: str | None) -> Finding:
        return Finding(self.topic, self.link, self.topic, health, since_us, code, reason, do)


@dataclass(frozen=True, slots=True)
class LinkBefore:
    """History of a link's topic that is not at rest.

    `samples`: as many as there are of SAMPLES, oldest first, the last of now. `moved_us`, `behind_us`: when it came to its place, and since when the target
    lacks something; None: nothing tells. `compared_us`: its newest step of a comparison. `stands_us`: since when, or since before, it has been at its place.
    `owner`: who runs it, or ran it last; None: nobody ever did. `by_broker`: that one is, or was, its target's broker. `begun_us`: when it began; None: long
    ago, or others began in vain just before. `broker`: of its target; None: it never had one. `rests_us`: how long it rests between two runs, where it runs
    by a schedule.
    """

    samples: Sequence[Sample] = ()
    moved_us: int | None = None
    behind_us: int | None = None
    compared_us: int | None = None
    stands_us: int | None = None
    owner: Holder | None = None
    by_broker: bool = False
    broker: Holder | None = None
    rests_us: int | None = None
    begun_us: int | None = None


def judge_now(link: LinkNow) -> Finding | None:
    """Judges what is clear without a look at what was before. None: the topic lacks something, and is to be judged by that (`judge`)."""
    found = _judged_now(link)
    return None if found is None else _with_left_out(link, found)


def _with_left_out(link: LinkNow, found: Finding) -> Finding:
    """The finding of a link that left out rows which no producer can have written, as long as nobody has accepted that. What does not cross is
    never fine. What is worse comes first.
    """
    if link.left_out == 0 or found.health.rank < Health.BEHIND.rank:
        return found
    if link.left_out is None:
        why = (
            f"how many rows of {link.source} it left out that no producer can have written is unknown; its next start counts them"
        )
        do = f"geo links restart {link.ends}"
    else:
        why = f"it left out {counted(link.left_out, 'row')} of {link.source} that no producer can have written"
        why = f"{why}: delete them there, or keep them; `geo reconcile` takes what is there then as right"
        do = f"geo reconcile {link.ends}"
        if link.state not in (State.STOPPED, State.PAUSED):  # who runs it owns it
            do = f"geo links pause {link.ends}; once it is PAUSED {do}; then geo links resume {link.ends}"
    reason = "; ".join(filter(None, (why, found.reason)))
    return link.finding(Health.BEHIND, link.left_out_since_us, Reason.IMPOSSIBLE_ROWS, reason, do)


def _judged_now(link: LinkNow) -> Finding | None:
    if link.away is not None or link.lag is None:
        away = link.away or Wrong(
            Reason.SOURCE_UNREADABLE, f"{link.source} cannot be read", "correct its place in the configuration, or its keys"
        )
        return link.finding(Health.AWAY, _met_away(link), away.code, away.what, away.do)
    if link.state is State.FAILED:
        code = link.code or Reason.OTHER
        return link.finding(Health.FAILED, link.since_us, code, link.reason or "it failed", _ends_failure(link, code))
    if link.rewound is not None and link.rewound is not Reason.STALE_CURSOR:
        why = link.reason or "its source is not the one that was read"
        return link.finding(Health.REWOUND, _of_fault(link), link.rewound, why, f"geo reconcile {link.ends}")
    if link.state is State.PAUSED:
        code = link.code or Reason.ASKED_TO_PAUSE
        do = f"geo links resume {link.ends}" if code is Reason.ASKED_TO_PAUSE else None
        return link.finding(Health.PAUSED, link.since_us, code, link.reason or "it rests", do)
    if link.stale is None and link.rewound is None and link.lag.in_sync and not link.unbegun:
        return link.finding(Health.OK, None, None, "", None)
    return None


def judge(link: LinkNow, before: LinkBefore, now_us: int) -> Finding:
    """Judges a topic of a link that lacks something, or may. It goes by who runs it, and by how its cursor and what it lacks have moved. (Any other
    as `judge_now`.)"""
    return judge_now(link) or _with_left_out(link, _judged(link, before, now_us))


def _judged(link: LinkNow, before: LinkBefore, now_us: int) -> Finding:
    assert link.lag is not None
    since_us = _lacks_since(link, before, now_us)
    if (missed := _nobody(link, before, since_us, now_us)) is not None:
        return missed
    lacks = _lacks(link)
    if link.unbegun and link.state is not State.DELAYED:
        return link.finding(Health.CATCHING_UP, None, None, lacks, None)
    if (owner := before.owner) is not None and owner.liveness is Liveness.HALTED:
        return link.finding(Health.STALLED, _stalled_since(before, since_us), owner.code, f"{lacks}; {owner.why}", owner.go_on)
    if link.rewound is not None:
        return link.finding(Health.REWOUND, None, link.rewound, lacks, f"geo links restart {link.ends}")
    if link.state is State.DELAYED:
        code = link.code or Reason.OTHER
        why = f"{lacks}: {link.reason or 'it waits to be tried again'}"
        return link.finding(Health.STALLED, link.since_us, code, why, code.do or "it is tried again by itself; end its cause")
    return _by_samples(link, before, since_us, now_us)


def _nobody(link: LinkNow, before: LinkBefore, since_us: int | None, now_us: int) -> Finding | None:
    """The finding where nobody runs a link that has work; None: somebody does, or may, or it rests by its schedule."""
    owner, broker = before.owner, before.broker
    if owner is not None and not owner.is_dead:
        return None
    ended_us = None if owner is None else owner.last_us
    known = [at for at in (ended_us, since_us) if at is not None]
    since = None if since_us is None or (owner is not None and ended_us is None) else max(known)
    is_lately = link.unbegun or (since is not None and now_us - since <= _WINDOW_US)
    if broker is not None and broker.liveness is Liveness.HALTED:
        return link.finding(Health.STALLED, since, broker.code, f"{_lacks(link)}; its broker: {broker.why}", broker.go_on)
    if broker is not None and not broker.is_dead and is_lately:
        why = f"{_lacks(link)}; its broker lives, and takes it up within some minutes"
        return link.finding(Health.CATCHING_UP, since, None, why, None)
    rested_us = now_us - (known[0] if known else 0)
    if before.rests_us is not None and link.rewound is None and rested_us <= _GRACE * before.rests_us:
        why = f"it runs by a schedule, and is missed when it rests for longer than {lasting(_GRACE * before.rests_us / 1e6)}"
        return link.finding(Health.CATCHING_UP, since_us, None, f"{_lacks(link)}; {why}", None)
    health, start = Health.STOPPED, f"geo replicate --cluster {link.target}"
    if broker is not None and broker.is_dead and (owner is None or before.by_broker):
        health, code, why = Health.NO_BROKER, broker.code, f"its broker is gone: {broker.why}"
        start = f"geo broker --cluster {link.target}"
    elif owner is None:
        code, why = Reason.NEVER_RAN, "nobody has ever run it"
    else:
        code, why = owner.code, owner.why
    if link.rewound is not None:
        health, code = Health.REWOUND, link.rewound
    elif link.state is State.DELAYED and link.code is not None:
        code, why = link.code, f"{why}; {link.reason or 'it had failed'}"
    return link.finding(health, since, code, f"{_lacks(link)}, and {why}", start)


def _by_samples(link: LinkNow, before: LinkBefore, since_us: int | None, now_us: int) -> Finding:
    """Burrow's rules."""
    assert link.lag is not None
    lacks, samples = _lacks(link), before.samples
    fine = link.finding(Health.CATCHING_UP, since_us, None, lacks, None)
    if any(one.is_zero for one in samples) and link.stale is None:
        return fine  # what it lacks came since
    if before.begun_us is not None and now_us - before.begun_us <= _WINDOW_US:
        return replace(fine, reason=f"{lacks}; who runs it began {lasting((now_us - before.begun_us) / 1e6)} ago")
    is_compared = before.compared_us is not None and now_us - before.compared_us <= _WINDOW_US
    if len(samples) < SAMPLES:  # it began lately, or the logs do not reach back so far, or not as far as they were read
        age_s = link.lag.seconds
        is_told = bool(samples) or before.moved_us is not None or before.compared_us is not None
        both_us = max(before.stands_us or now_us, since_us or now_us)
        if now_us - both_us > _WINDOW_US and not is_compared:  # who stood still for so long need not be looked at in between
            return _stalled(link, before, since_us, now_us)
        if is_told or (link.lag.complete and age_s is not None and age_s * 1e6 <= _WINDOW_US):
            return fine
        why = f"{lacks}; nothing tells whether that becomes less"
        return link.finding(Health.BEHIND, None, Reason.OTHER, why, f"geo links restart {link.ends}")
    moved = len({one.cursor for one in samples}) > 1
    if not moved and not is_compared:
        return _stalled(link, before, since_us, now_us)
    measures = _measures(samples)
    half = len(measures) // 2
    if moved and min(measures[half:]) >= min(measures[:half]):
        why = f"{lacks}, and that does not become less; it has been so for {lasting((now_us - samples[0].at_us) / 1e6)} at least"
        do = f"let the link bring more at once (num_fetchers, dispatch_rate of {link.link} in the configuration)"
        return link.finding(Health.BEHIND, since_us, Reason.GROWING, why, do)
    return fine


def _stalled(link: LinkNow, before: LinkBefore, since_us: int | None, now_us: int) -> Finding:
    stalled_us = _stalled_since(before, since_us)
    known_us = stalled_us or (before.samples[0].at_us if before.samples else now_us)
    why = f"{_lacks(link)}, and it has not moved for {lasting((now_us - known_us) / 1e6)}"
    code = Reason.STALE_CURSOR if link.stale is not None else Reason.NOT_MOVING
    return link.finding(Health.STALLED, stalled_us, code, why, f"geo links restart {link.ends}")


def _measures(samples: Sequence[Sample]) -> list[int]:
    """Measures what was lacking at each sample, in messages where all of them tell that, else in versions."""
    messages = [one.lag.messages for one in samples if one.lag.complete and one.lag.messages is not None]
    return messages if len(messages) == len(samples) else [one.lag.versions or 0 for one in samples]


def _lacks_since(link: LinkNow, before: LinkBefore, now_us: int) -> int | None:
    """Since when the target lacks something; where the logs do not tell, since when it lacks the oldest that it does. None: nobody knows, as since when both
    logs are to be compared that have the same newest message.
    """
    if before.behind_us is not None:
        return before.behind_us
    age_s = None if link.lag is None else link.lag.seconds
    return None if age_s is None or ((link.stale is not None or link.unbegun) and not age_s) else now_us - round(age_s * 1e6)


def _stalled_since(before: LinkBefore, since_us: int | None) -> int | None:
    """Since when its source is ahead of a cursor that stands still."""
    return since_us if before.moved_us is None or since_us is None else max(before.moved_us, since_us)


def _of_fault(link: LinkNow) -> int | None:
    """Since when its runner has met what is wrong; None: nobody says."""
    return link.since_us if link.state in (State.DELAYED, State.FAILED) else None


_UNREAD = (
    Reason.SOURCE_GONE, Reason.SOURCE_UNREADABLE, Reason.TARGET_GONE, Reason.REGISTRY_EMPTY, Reason.NO_ANSWER, Reason.NO_BUCKET, Reason.NO_RIGHT,
    Reason.KEYS_REFUSED, Reason.STORAGE, Reason.MISNAMED,
)  # fmt: skip
"""Codes with which a runner meets a place that is away."""


def _met_away(link: LinkNow) -> int | None:
    """Derives since when its runner has met what is away: a fault of another kind tells nothing of that."""
    return _of_fault(link) if link.code is None or link.code in _UNREAD else None


_OF_SOURCE = (Reason.SOURCE_RECREATED, Reason.SOURCE_RESTORED, Reason.SOURCE_ROWS_GONE, Reason.SOURCE_CHANGED)


def _ends_failure(link: LinkNow, code: Reason) -> str:
    if code in _OF_SOURCE:
        return f"geo links resolve {link.ends}"
    if code is Reason.COLUMNS:
        return f"geo links resolve {link.ends} --accept-type"
    again = f"geo links restart {link.ends}"
    return again if code.do is None else f"{code.do}, then {again}"


def limited(found: Finding, lacks_s: float | None, now_us: int, max_lag_s: float | None, *, complete: bool) -> Finding:
    """The finding where something may be lacking for so long at most. None: for any time. `lacks_s`: for how long it is, at least if that is not
    `complete`. None: nobody knows. What is a problem anyway stays what it is."""
    is_within = complete and lacks_s is not None and max_lag_s is not None and lacks_s <= max_lag_s
    if max_lag_s is None or is_within or found.is_problem(now_us):
        return found
    behind, since_us = "nobody knows for how long it has been lacking something", None
    if lacks_s is not None and lacks_s > max_lag_s:
        behind, since_us = f"it lacks what came {lasting(lacks_s)} ago", now_us - int(lacks_s * 1e6)
    reason = f"{behind}, and {lasting(max_lag_s)} are allowed (--max-lag)"
    return replace(found, health=Health.BEHIND, code=Reason.LAG_LIMIT, reason=reason, since_us=since_us)


def _lacks(link: LinkNow) -> str:
    if link.unbegun:
        return "it will begin at the end of its source, and what comes until then does not cross"
    if link.stale is not None:
        return link.stale
    if (lag := link.lag) is None or (lag.messages is None and lag.seconds is None):
        return "nobody knows how much it lacks"
    count = "messages in an unknown number" if lag.messages is None else counted(lag.messages, "message")
    more = "" if lag.complete or lag.messages is None else "at least "
    age = "" if lag.seconds is None else f", the oldest for {lasting(lag.seconds)}"
    return f"it lacks {more}{count}{age}"


def longest_rest_us(runs: Sequence[tuple[int, int]], ended_us: int) -> int | None:
    """The longest time for which a link rested between two runs. `runs`: in order, the claims under which it replicated something, each with the
    time of that. None: it was run once, as far as is known. Or its last run, which ended then, took longer: it runs on and on, and was away once.
    """
    longest = max((later - earlier for (was, earlier), (now, later) in pairwise(runs) if now != was), default=None)
    if longest is None:
        return None
    began_us = next(at_us for claim, at_us in runs if claim == runs[-1][0])
    return longest if ended_us - began_us < longest else None
