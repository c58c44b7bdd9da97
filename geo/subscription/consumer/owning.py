"""A consumer owns its subscription in a cluster, or its share of the keys, as a standby once nobody else does."""

from __future__ import annotations

import logging
import math
import threading
import time

from geo.coordination.claiming import claim
from geo.coordination.ownership import Ownership, release
from geo.coordination.runners import Runner, consumer_runner
from geo.errors import AlreadyOwnedError, UsageError
from geo.faults import FAULTS, needs_person, session_is_gone
from geo.log.partitioned import partitions
from geo.streams.life import backoff_s
from geo.subscription.acks.consumers import consumers_of
from geo.subscription.consumer.settings import Settings
from geo.text import first_line

log = logging.getLogger(__name__)

STANDBY_INTERVAL_S, STANDBY_SHARE = 2.0, 4
"""Seconds between two questions of a standby whether the subscription is free; asking takes a fifth of its time at most."""


def refuse_without_log(settings: Settings) -> None:
    """Raises UsageError for a topic that has no log in the cluster, and for one that is partitioned."""
    if not settings.tables.log(settings.topic).exists():
        if parts := partitions(settings.tables, settings.topic):
            raise UsageError(f"{settings.topic} is partitioned: consume {parts[0]} to {parts[-1].name} with Subscriptions.")
        raise UsageError(
            f"{settings.topic}: has no log in cluster {settings.tables.cluster.name}. Publish to it, or let a link bring it; "
            "`geo topics list` shows what is there."
        )


def own(settings: Settings, stopped: threading.Event, ends_at: float | None) -> Ownership | None:
    """Own the subscription in this cluster, as a standby once nobody else does, and whatever fails meanwhile. None: the run was over before."""
    runner = consumer_runner(settings.tables, settings.topic, settings.name, settings.share)
    said, failed = "", 0
    while True:
        begun = time.monotonic()
        try:
            return _claim(settings, runner)
        except FAULTS as error:
            if not settings.standby or needs_person(error) or session_is_gone(error):
                raise
            failed = 0 if isinstance(error, AlreadyOwnedError) else failed + 1
            why = first_line(error).partition(" One runner at a time")[0]
        if why != said:
            log.log(logging.WARNING if failed else logging.INFO, "%s: standing by: %s", settings, why)
            said = why
        wait_s = max(STANDBY_INTERVAL_S, STANDBY_SHARE * (time.monotonic() - begun), backoff_s(failed) if failed else 0.0)
        left_s = math.inf if ends_at is None else ends_at - time.monotonic()
        if left_s <= 0 or stopped.wait(min(wait_s, left_s)):
            return None


def give_back(settings: Settings, ownership: Ownership, *, tidy: bool, told: bool) -> None:
    """Not `told`: whoever comes next cannot know all that was acknowledged, and a failover says so."""
    if not tidy:
        ownership.abandon()
        return
    ownership.in_flight = not told
    try:
        release([ownership])
    except FAULTS as error:
        log.warning("%s: could not be given back: %s", settings, first_line(error))
        ownership.abandon()


def _claim(settings: Settings, runner: Runner) -> Ownership:
    """Raises AlreadyOwnedError also where somebody delivers other shares of the keys than these, or all of them. Whoever did and ended badly, or is
    silent, is fenced with it, and may be replaced by `take_over` as the own runner."""
    others = _others(settings, runner)
    mine, *theirs = claim(settings.tables, [[runner], *([other] for other in others)], take_over=settings.take_over)
    for other in theirs:
        other.in_flight = False  # what they could not tell comes again to this one
    release(theirs)
    if _others(settings, runner):  # of two that begin at once each sees the other, or one does
        release([mine])
        raise AlreadyOwnedError(
            f"{settings}: another consumer with other shares of the keys began at the same moment. Start again."
        )
    return mine


def _others(settings: Settings, runner: Runner) -> list[Runner]:
    """Runners that have not released the subscription and deliver keys that this one does, too."""
    key_range = settings.key_range
    same = None if key_range is None else f" of {key_range[1]}"
    owners = [one for one in consumers_of(settings.tables, settings.topic, settings.name) if one.is_owned]
    shares = [one.runner.partition(", ")[2] for one in owners if one.runner != runner.name]
    return [
        consumer_runner(settings.tables, settings.topic, settings.name, share)
        for share in shares
        if same is None or not share.endswith(same)
    ]
