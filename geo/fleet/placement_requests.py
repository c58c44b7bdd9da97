"""Requests of people: moves and splits of bundles (`system/bundle_requests`), and the policies by which bundles are placed
(`system/placement_policies`). Both hold over restarts: whoever leads reads them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from geo.errors import UsageError
from geo.fleet.placement.leading import SPLIT, TRANSFER, UNLOAD, BundleRequest
from geo.fleet.placement.policies import Isolation, Policies
from geo.journal.cluster import ClusterTables
from geo.now import utc_now
from geo.schemas import BUNDLE_REQUESTS, PLACEMENT_POLICIES
from geo.text import first_line

log = logging.getLogger(__name__)

ISOLATION, DOMAIN, ANTI_AFFINITY = "isolation", "domain", "anti-affinity"


def read_requests(tables: ClusterTables) -> list[BundleRequest]:
    """The newest request for each bundle."""
    found = []
    for row in tables.journal(BUNDLE_REQUESTS).newest():
        if row["action"] not in (UNLOAD, TRANSFER, SPLIT):  # of a newer program
            log.warning("nobody here knows what %r asks of bundle %s", row["action"], row["bundle"])
            continue
        positions = tuple(row["positions"] or ())
        found.append(BundleRequest(row["bundle"], row["action"], row["sequence"], row["broker"] or "", positions))
    return found


def ask(tables: ClusterTables, bundle: str, action: str, *, broker: str | None = None, positions: tuple[int, ...] = ()) -> int:
    """Record a request, after all that are there. Returns its number."""
    row = {"bundle": bundle, "action": action, "broker": broker, "positions": list(positions) or None, "by": str(tables.me),
           "asked_at": utc_now()}  # fmt: skip
    return tables.journal(BUNDLE_REQUESTS).append_next(row)


def set_policy(tables: ClusterTables, kind: str, name: str, value: Mapping[str, Any] | None) -> None:
    """Record a policy, or with None that there is none of this name any more."""
    text = None if value is None else json.dumps(value, sort_keys=True)
    row = {"kind": kind, "name": name, "value": text, "by": str(tables.me), "set_at": utc_now()}
    tables.journal(PLACEMENT_POLICIES).append_next(row)


def read_policies(tables: ClusterTables) -> dict[tuple[str, str], dict[str, Any]]:
    """Policies by kind and name, in the order in which they were set."""
    rows = sorted(tables.journal(PLACEMENT_POLICIES).newest(), key=lambda row: int(row["sequence"]))
    return {(row["kind"], row["name"]): json.loads(row["value"]) for row in rows if row["value"] is not None}


def policies_of(found: Mapping[tuple[str, str], Mapping[str, Any]]) -> Policies:
    """The policies as the manager reads them. One that nobody here can read is left out, with a warning."""
    isolations: list[Isolation] = []
    groups: dict[str, str] = {}
    domains: dict[str, set[str]] = {}
    for (kind, name), value in found.items():
        try:
            if kind == ISOLATION:
                isolations.append(Isolation(**value))
            elif kind == DOMAIN:
                domains[name] = set(value["brokers"])
            elif kind == ANTI_AFFINITY:
                groups[name] = value["group"]
            else:
                log.warning("nobody here knows policies of kind %r", kind)
        except (UsageError, TypeError, KeyError) as error:
            log.warning("%s %s cannot be read and is left out: %s", kind, name, first_line(error))
    return Policies(isolations, groups, domains)
