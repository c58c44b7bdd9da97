"""The lead of the brokers that share a cluster: who has it decides which of them is to own each bundle."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Set
from contextlib import suppress

from geo.config.placement import Placement
from geo.coordination.claiming import claim
from geo.coordination.claims import Owner
from geo.coordination.holders import RegionHolders
from geo.coordination.ownership import Ownership, release
from geo.coordination.runners import broker_runner
from geo.coordination.storage_clock import storage_now_us
from geo.delta.process import Process
from geo.errors import AlreadyOwnedError, FencedError
from geo.faults import FAULTS
from geo.fleet.assignments import Owners, keep_averages, leader_runner, read_averages, write_orders
from geo.fleet.placement.leading import LeaderFacts, Leading
from geo.journal.cluster import ClusterTables
from geo.text import first_line

log = logging.getLogger(__name__)


class Lead:
    """One broker's part in it. Two that think to have the lead may decide; what counts is written under the newest claim alone."""

    def __init__(self, tables: ClusterTables, broker: str, placement: Placement, say: Callable[[str], None]) -> None:
        self._tables, self._broker, self._placement, self._say = tables, broker, placement, say
        self.ownership: Ownership | None = None
        self._leading = Leading(placement, random.choice)

    def change(self, placement: Placement) -> None:
        """Decide by these settings from now on."""
        self._placement, self._leading = placement, Leading(placement, random.choice, self._leading)

    def is_held(self, *, leaving: bool) -> bool:
        """Tells whether this broker leads. One that is `leaving` gives it up."""
        if self.ownership is None:
            return False
        if leaving:
            with suppress(*FAULTS):  # another one leads already, or its storage is away: the next one asks for reports anew
                keep_averages(self._tables, self.ownership, self._leading.averages)
            release([self.ownership])
            self.ownership = None
            return False
        if self.ownership.still_owns():
            return True
        log.warning("broker %s leads no longer: another one took over", self._broker)
        self.ownership.abandon()
        self.ownership = None
        return False

    def take(self, owners: Owners, names: Mapping[str, str], living: Set[str], watched_s: float) -> None:
        """Take the lead if nobody has it, or who has it is silent. `names` has the broker of each process, `living` are those that give signs of
        life, which were watched for `watched_s`."""
        if owners.shares and owners.lead is not None and _lives(owners.lead, names, living):
            return
        runner = broker_runner(self._tables)
        holder = RegionHolders(self._tables).of_runner(runner.name)
        is_free = holder is None or holder.is_dead
        if not is_free and (not owners.shares or watched_s <= self._placement.broker_timeout_s):
            return  # by one that is alone, or perhaps by one of which no sign of life was watched for long enough
        try:
            (self.ownership,) = claim(self._tables, [[runner, leader_runner(self._tables)]], take_over=not is_free)
        except AlreadyOwnedError:
            return
        self._leading = Leading(self._placement, random.choice, averages=read_averages(self._tables))
        self._say(f"broker {self._broker} leads the brokers of {self._tables.cluster.name}")

    def say_anew(self, facts: LeaderFacts, now: float) -> None:
        """Decide, and write what is reassigned. For a leadership that is held."""
        assert self.ownership is not None
        # What another leader has said is held against the clock by which it was said.
        storage_s = storage_now_us(self._tables) / 1e6
        orders = self._leading.step(facts, self.ownership.generation, storage_s, now)
        try:
            write_orders(self._tables, self.ownership, orders)
        except FencedError as error:
            log.warning("broker %s leads no longer, and said nothing: %s", self._broker, first_line(error))
            self.ownership.abandon()
            self.ownership = None
            return
        for line in orders.said:
            self._say(line)
        for line in orders.warned:
            log.warning("%s: %s", self._tables.cluster.name, line)


def _lives(lead: Owner, names: Mapping[str, str], living: Set[str]) -> bool:
    """Tells whether the broker that leads gives signs of life."""
    process = Process.decode(lead.holder)
    if not lead.is_owned or process is None:
        return False
    if process.is_mine or (process.is_seen_here and not process.lives):
        return False  # its own, of which this broker does not know: it was interrupted while it claimed
    return names.get(process.name) in living
