"""A broker among several: that it lives and how busy it is, as its reports say, and which others live."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

from geo.config.placement import Placement
from geo.coordination.claiming import claim
from geo.coordination.liveness import Signs
from geo.coordination.owners import owner_of
from geo.coordination.ownership import Ownership
from geo.coordination.storage_clock import storage_now_us
from geo.delta.process import Process
from geo.errors import AlreadyOwnedError
from geo.fleet.assignments import member_runner
from geo.fleet.bundle_states import Activity
from geo.fleet.load_meter import LoadMeter
from geo.fleet.load_reports import LEAVING, LEFT, UP, LoadReport, append_report, names_of, read_reports
from geo.fleet.placement.load_data import BrokerLoad, Usage, is_due
from geo.journal.cached_view import CachedView
from geo.journal.cluster import ClusterTables
from geo.now import utc_now
from geo.schemas import LOAD_REPORTS
from geo.streams import timetable
from geo.streams.life import State
from geo.times import from_us

SIGNS = 3
"""Signs of life in a broker timeout."""


class Presence:
    """The name of a broker, which one process has, its reports, and what the reports of others tell."""

    def __init__(
        self, tables: ClusterTables, name: str, placement: Placement, *, is_local: bool, say: Callable[[str], None]
    ) -> None:
        """`is_local`: a look at the tables takes no request. `say` gets lines for people."""
        self._tables, self.name, self.placement, self._say = tables, name, placement, say
        self.owned: Ownership | None = None
        """Ownership of the name."""
        self.reports: dict[str, LoadReport] = {}
        """The newest report of each broker, as of the last look."""
        self._cached_reports = CachedView(tables.journal(LOAD_REPORTS), lambda: read_reports(tables))
        self._signs, self._meter = Signs(), LoadMeter(tables, is_local=is_local)
        self._reported_load: BrokerLoad | None = None
        self._loaded_at, self._load_at = utc_now(), time.monotonic()
        self._sign_at, self._reported_state = -float("inf"), UP

    def take_name(self, *, take_over: bool, stop: threading.Event, look_s: float) -> None:
        """Own the name. One of another host, as that of a pod which comes back elsewhere, is watched for the broker timeout. It is taken over if it
        gives no sign of life. `stop` ends the wait; `look_s`: seconds between two looks. Raises AlreadyOwnedError if a broker of this name
        lives.
        """
        wanted = [[member_runner(self._tables, self.name)]]
        try:
            (self.owned,) = claim(self._tables, wanted, take_over=take_over)
        except AlreadyOwnedError:
            if not self._is_silent(stop, look_s):
                raise
            (self.owned,) = claim(self._tables, wanted, take_over=True)

    def _is_silent(self, stop: threading.Event, look_s: float) -> bool:
        """Tells whether the broker that has the name is of another host, and says nothing for the broker timeout."""
        owner = owner_of(self._tables, member_runner(self._tables, self.name).name)
        holder = None if owner is None else Process.decode(owner.holder)
        deadline = time.monotonic() + self.placement.broker_timeout_s
        if holder is None or holder.is_seen_here:
            return False  # of one on this host the system says whether it lives
        self._say(f"broker {self.name}: {holder} has the name; it is watched for {self.placement.broker_timeout_s} s")
        before = self._sequence()
        while time.monotonic() < deadline:
            if self._sequence() != before:
                return False
            stop.wait(look_s)
        return True

    def _sequence(self) -> int | None:
        report = self._cached_reports.now().get(self.name)
        return None if report is None else report.sequence

    def look(self, now: float) -> None:
        """Read the reports of all. Raises FencedError once another broker has this one's name."""
        assert self.owned is not None
        self.owned.refuse_if_replaced()
        self.reports = self._cached_reports.now()
        sequences = {name: report.sequence for name, report in self.reports.items()}
        self._signs.observe(sequences, now, self.placement.broker_timeout_s / 2)

    def report(
        self,
        now: float,
        *,
        leaving: bool,
        activities: Callable[[], Sequence[Activity]],
        bundles: Collection[str],
        bundle_of: Callable[[str], str],
    ) -> None:
        """Give a sign of life if it is time, with another load if that has changed much."""
        state = LEAVING if leaving else UP
        interval_s = min(self.placement.broker_timeout_s / SIGNS, timetable.MOST_SIGN_S)
        if state == self._reported_state and now - self._sign_at < interval_s:
            return
        load = self._measure(now, activities(), bundles, bundle_of)
        last, settings = self._reported_load, self.placement.settings
        if last is None or last.bundles.keys() != load.bundles.keys() or is_due(last, load, now - self._load_at, settings):
            self._reported_load, self._load_at, self._loaded_at = load, now, from_us(storage_now_us(self._tables))
        self._write(state)
        self._sign_at, self._reported_state = now, state

    def report_end(self) -> None:
        """Report that it left."""
        self._write(LEFT)

    def _write(self, state: str) -> None:
        load = self._reported_load or BrokerLoad(*(Usage(0.0, 0.0),) * 4, {})
        before = self.reports.get(self.name)
        append_report(self._tables, self.name, state, load, self._loaded_at, after=0 if before is None else before.sequence)

    def _measure(
        self, now: float, activities: Sequence[Activity], bundles: Collection[str], bundle_of: Callable[[str], str]
    ) -> BrokerLoad:
        """The load of this broker since it was measured last."""
        messages: dict[str, int] = {}
        for one in activities:
            if one.state is not State.PAUSED:
                messages[str(one.topic)] = messages.get(str(one.topic), 0) + one.messages
        nic_gbps = self.placement.settings.override_broker_nic_speed_gbps
        return self._meter.measure(messages, bundles, bundle_of, nic_gbps, now)

    # -- the others ----------------------------------------------------------------------------------------------------

    def names(self) -> dict[str, str]:
        """The broker of each process."""
        return {**names_of(self.reports), self._tables.me.name: self.name}

    def living(self, now: float) -> set[str]:
        """The brokers that gave a sign of life in time and have not left; this one always."""
        alive = self._signs.living(now, self.placement.broker_timeout_s)
        return {name for name in alive if self.reports[name].state != LEFT} | {self.name}

    def watched_s(self, now: float) -> float:
        """Seconds for which the signs of others have been watched."""
        return self._signs.watched_s(now)

    def up(self, now: float) -> list[str]:
        """The living brokers that are to have bundles, by name."""
        return [name for name in sorted(self.living(now)) if name in self.reports and self.reports[name].state == UP]

    def is_alone(self, now: float) -> bool:
        """True if no other broker lives that could take what this one has."""
        return not any(name != self.name for name in self.up(now))
