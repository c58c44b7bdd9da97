"""The checksum of a version, from that of one before it and the commits since. Whoever committed may not have put it yet, or never: it died, or is
another program that puts none. Pure.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any


class UntoldError(ValueError):
    """The commits do not tell it."""


_HISTOGRAMS, _DELETED = ("fileSizeHistogram", "histogramOpt"), "deletedRecordCountsHistogramOpt"
_DELETED_ROWS, _VECTORS = "numDeletedRecordsOpt", "numDeletionVectorsOpt"
"""Fields for rows that were deleted one by one; not there while a table does not ask for deletion vectors."""

LISTED_FILES = 50
"""A checksum lists all files of a table that has so many at most; Spark would look for them otherwise, a second a commit."""

NOTHING: Mapping[str, Any] = MappingProxyType(
    {
        "tableSizeBytes": 0,
        "numFiles": 0,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "allFiles": [],
    }
)
"""Before the first commit of a table."""


def checksum_after(before: Mapping[str, Any], lines: Iterable[str]) -> dict[str, Any]:
    """The checksum after a commit with these lines. Raises UntoldError, and ValueError, KeyError, TypeError or AttributeError for what is no
    commit."""
    after: dict[str, Any] = {**before, "txnId": None}
    for name in (*_HISTOGRAMS, _DELETED):  # which nobody has to give
        after.pop(name, None)
    files = None if after.get("allFiles") is None else {_file_id(file): file for file in after["allFiles"]}
    transactions = {one["appId"]: one for one in after.get("setTransactions") or ()}
    domains = {one["domain"]: one for one in after.get("domainMetadata") or ()}
    for number, line in enumerate(filter(None, lines)):
        for name, fields in json.loads(line).items():
            if name == "commitInfo" and not number:  # where it is looked for
                after["txnId"] = fields.get("txnId")
                after |= {"inCommitTimestampOpt": fields["inCommitTimestamp"]} if "inCommitTimestamp" in fields else {}
            elif name in ("add", "remove"):
                if fields.get("size") is None:
                    raise UntoldError("a commit does not say how large a file is")
                sign = 1 if name == "add" else -1
                after["numFiles"] += sign
                after["tableSizeBytes"] += sign * fields["size"]
                if vector := fields.get("deletionVector"):
                    after[_DELETED_ROWS] = after.get(_DELETED_ROWS, 0) + sign * vector["cardinality"]
                    after[_VECTORS] = after.get(_VECTORS, 0) + sign
                if files is not None:
                    files.pop(_file_id(fields), None)
                    if name == "add":
                        files[_file_id(fields)] = {**fields, "dataChange": False}
            elif name == "metaData":
                after["metadata"] = fields
            elif name == "protocol":
                after["protocol"] = fields
            elif name == "txn":
                transactions[fields["appId"]] = fields
            elif name == "domainMetadata":
                domains[fields["domain"]] = fields
    if files is None:
        after.pop("allFiles", None)
    else:  # which know best: a file may be added twice
        after |= {
            "allFiles": list(files.values()),
            "numFiles": len(files),
            "tableSizeBytes": sum(one["size"] for one in files.values()),
        }
    if "setTransactions" in before:
        after["setTransactions"] = list(transactions.values())
    if "domainMetadata" in before:
        after["domainMetadata"] = [one for one in domains.values() if not one.get("removed")]
    return after


def _file_id(file: Mapping[str, Any]) -> tuple[Any, ...]:
    """Identity of a file of a table: the same one with other rows deleted is another."""
    vector = file.get("deletionVector") or {}
    return (file["path"], *(vector.get(name) for name in ("storageType", "pathOrInlineDv", "offset")))


def checksum_with(before: Mapping[str, Any], added: Sequence[Mapping[str, Any]], taken: Mapping[str, int]) -> dict[str, Any]:
    """The checksum of the version that adds these files, as its actions have them, and takes others, by path with their sizes. None of them
    has rows that were deleted one by one."""
    after = {
        **before,
        "tableSizeBytes": before["tableSizeBytes"] + sum(file["size"] for file in added) - sum(taken.values()),
        "numFiles": before["numFiles"] + len(added) - len(taken),
    }
    listed = after.pop("allFiles", [] if before["numFiles"] == len(taken) else None)  # of those that stay: none does
    if listed is not None and after["numFiles"] <= LISTED_FILES:
        stay = (file for file in listed if file["path"] not in taken)
        after["allFiles"] = [*stay, *({**file, "dataChange": False} for file in added)]
    changes = [*((file["size"], 1) for file in added), *((size, -1) for size in taken.values())]
    for name in _HISTOGRAMS:
        if (histogram := before.get(name)) is not None:
            after[name] = _histogram_after(histogram, changes)
    if (histogram := before.get(_DELETED)) is not None:
        none, *some = histogram["deletedRecordCounts"]
        after[_DELETED] = {**histogram, "deletedRecordCounts": [none + len(added) - len(taken), *some]}
    return after


def _histogram_after(before: Mapping[str, Any], changes: Iterable[tuple[int, int]]) -> dict[str, Any]:
    counts, sizes = list(before["fileCounts"]), list(before["totalBytes"])
    for size, count in changes:
        place = bisect_right(before["sortedBinBoundaries"], size) - 1
        counts[place] += count
        sizes[place] += count * size
    return {**before, "fileCounts": counts, "totalBytes": sizes}
