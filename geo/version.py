"""The version of this program."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def program_version() -> str:
    """The version as it was installed; empty where the program runs from a zip, which has no version of its own."""
    try:
        return version("delta-geo")
    except PackageNotFoundError:
        return ""
