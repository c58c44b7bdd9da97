"""`system/load_reports`: what each broker of a cluster says of itself. A row is a sign of life too, whether or not the load has changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from geo.coordination.storage_clock import storage_now_us
from geo.delta.process import Process
from geo.fleet.placement.load_data import BrokerLoad, decode, encode
from geo.journal.cluster import ClusterTables
from geo.schemas import LOAD_REPORTS
from geo.version import program_version

UP, LEAVING, LEFT = "up", "leaving", "left"

_VERSION = "version"
"""Beside the load."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A broker's newest row."""

    broker: str
    holder: str
    """Its process, encoded (geo.delta.process)."""
    state: str
    load: BrokerLoad
    loaded_at: datetime
    sequence: int
    version: str = ""
    """Version of its program; empty: of one that does not report it."""


def read_reports(tables: ClusterTables) -> dict[str, LoadReport]:
    """The newest report of each broker that ever was one of this cluster and is not forgotten yet, by its name."""
    found = {}
    for row in tables.journal(LOAD_REPORTS).newest():
        said, name = json.loads(row["load"]), row["broker"]
        load, version = decode(said), str(said.get(_VERSION, ""))
        found[name] = LoadReport(name, row["holder"], row["state"], load, row["loaded_at"], row["sequence"], version)
    return found


def names_of(reports: Mapping[str, LoadReport]) -> dict[str, str]:
    """The broker of each process that is one, by the process's name."""
    return {holder.name: name for name, one in reports.items() if (holder := Process.decode(one.holder)) is not None}


def append_report(
    tables: ClusterTables, broker: str, state: str, load: BrokerLoad, loaded_at: datetime, *, after: int = 0
) -> None:
    """A broker's report, or a sign of life with the one before, at the storage's time. `after`: the sequence of the newest row of this name."""
    said = json.dumps({**encode(load), _VERSION: program_version()})
    row = {"broker": broker, "holder": tables.me.encode(), "state": state, "load": said, "loaded_at": loaded_at,
           "sequence": max(storage_now_us(tables), after + 1)}  # fmt: skip
    tables.journal(LOAD_REPORTS).append([row])
