"""Locations: on a local disk, or behind a scheme. Pure: no Spark, clock or I/O."""

from __future__ import annotations

import re

_SAME = {"s3": "s3a", "s3n": "s3a", "abfs": "abfss", "dbfs": ""}
"""Different schemes of one storage: to see that two locations are the same, never to write to one."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def has_scheme(location: str) -> bool:
    """Tells whether the location is a URI, be it of a local disk."""
    return _SCHEME.match(location) is not None


def scheme_of(location: str) -> str:
    """The scheme of a URI; "" for a path of a local disk."""
    found = _SCHEME.match(location)
    scheme = found[1].lower() if found else ""
    return "" if scheme == "file" else scheme


def storage_of(location: str) -> str:
    """The storage behind a scheme, one word for all that lead to it: s3a, abfss, gs and so on. "" for a local disk, and where Databricks shows one."""
    return _SAME.get(scheme_of(location), scheme_of(location))


def authority_of(location: str) -> str:
    """The bucket, account or host of a URI `scheme://authority/path`; "" if it has none."""
    return location.partition("://")[2].partition("/")[0]
