"""Fields of a commit whose table has features that ask for them: when it was made, and which numbers its rows have. Pure.

Delta's PROTOCOL.md: "In-Commit Timestamps", "Row Tracking".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from geo.delta.protocol import has_times, tracks_rows

_DOMAIN, _HIGHEST = "delta.rowTracking", "rowIdHighWaterMark"


def timed(before: Mapping[str, Any], now_ms: int) -> dict[str, int]:
    """Tells when a commit after the version with the checksum `before` was made, as its `commitInfo` says it; nothing where none says it."""
    if not has_times(before["metadata"].get("configuration") or {}):
        return {}
    return {"inCommitTimestamp": max(now_ms, int(before["inCommitTimestampOpt"]) + 1)}


def numbered(
    before: Mapping[str, Any], version: int, added: Iterable[tuple[Mapping[str, Any], int]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """New files, as the commit of `version` adds them, with the numbers that their rows have above all others, and the domains that this
    changes. `added`: files with their rows; `before` as `timed`."""
    if not tracks_rows(before["protocol"], before["metadata"].get("configuration") or {}):
        return [dict(file) for file, _ in added], []
    highest = _highest(before["domainMetadata"])
    files = []
    for file, rows in added:
        files.append({**file, "baseRowId": highest + 1, "defaultRowCommitVersion": version})
        highest += rows
    changed = {"domain": _DOMAIN, "configuration": json.dumps({_HIGHEST: highest}, separators=(",", ":")), "removed": False}
    return files, [changed] if files else []


def _highest(domains: Sequence[Mapping[str, Any]]) -> int:
    told = (json.loads(one["configuration"])[_HIGHEST] for one in domains if one["domain"] == _DOMAIN)
    return int(next(told, -1))
