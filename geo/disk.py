"""Places on a local disk. What is there outlives a power cut once it was written out. The operating system holds it for half a minute otherwise,
and what it still holds comes back empty, or not at all.

`GEO_SYNC=off` in the environment switches it off, for a disk whose loss costs nothing.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

from geo.locations import has_scheme

SETTING = "GEO_SYNC"


def local_path(location: str) -> Path | None:
    """The path of a location on a local disk; None for a URI of anything else."""
    plain = re.sub(r"^file:(//)?(?=/)", "", location, flags=re.IGNORECASE)
    return None if has_scheme(plain) else Path(plain)


def full_at(error: OSError, place: object) -> OSError | None:
    """The error of a disk without space, with the place that was to be written. None: `error` says something else."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return error if error.filename is not None else OSError(error.errno, os.strerror(error.errno), str(place))


def fullest(locations: Iterable[str]) -> str | None:
    """Finds the local disk with the least space among some locations, and tells how much that is. None: none is local."""
    found = list[tuple[int, int, Path]]()
    for location in locations:
        if (local := local_path(location)) is not None:
            place = next(one for one in (local.absolute(), *local.absolute().parents) if one.exists())
            of = os.statvfs(place)
            found.append((of.f_bavail * of.f_frsize, of.f_blocks * of.f_frsize, local))
    free, whole, path = min(found, default=(0, 0, None))
    return None if path is None else f"{path} ({free / 2**20:,.1f} of {whole / 2**20:,.0f} MiB are left)"


def syncs() -> bool:
    """Tells whether anything is written out at all."""
    return os.environ.get(SETTING, "").lower() != "off"


def sync(paths: Iterable[Path]) -> None:
    """Write files, or the names in folders, out to the disk. What is not there is left out, and folders above ours that may not be opened. Raises
    OSError where the disk fails."""
    if not syncs():
        return
    for path in paths:
        try:
            handle = os.open(path, os.O_RDONLY)
        except (FileNotFoundError, PermissionError):
            continue
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of folders on some network file systems
                raise
        finally:
            os.close(handle)
