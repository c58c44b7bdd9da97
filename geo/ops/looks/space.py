"""Free space where a cluster has its tables and checkpoints on a local disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from geo.disk import local_path
from geo.journal.cluster import ClusterTables
from geo.ops.symptom import Symptom
from geo.reasons import Reason

FULL_BYTES = 64 * 2**20
"""With less, a commit of a large batch, or a checkpoint, does not fit any more."""

LITTLE_BYTES, LITTLE_SHARE = 2**30, 0.05
"""A disk with less of both is full soon: a busy region writes a gigabyte in minutes."""


def free_space(tables: ClusterTables) -> Iterator[Symptom]:
    """Judges each local disk of a cluster, once."""
    where, seen = f"cluster {tables.cluster.name}", set[int]()
    for location in tables.cluster.locations:
        if (local := local_path(location)) is None:
            continue
        place = next(one for one in (local, *local.parents) if one.exists())
        if (disk := place.stat().st_dev) not in seen:
            seen.add(disk)
            of = os.statvfs(place)
            yield judged(where, local, of.f_bavail * of.f_frsize, of.f_blocks * of.f_frsize)


def judged(where: str, path: Path, free: int, whole: int) -> Symptom:
    """Judges a disk with so many bytes, of which so many are free for this user."""
    told = f"{free / 2**30:,.1f} GiB of {whole / 2**30:,.1f} are free at {path}"
    if free < FULL_BYTES:
        what = f"{free / 2**20:,.0f} MiB are left at {path}: nothing more can be committed there soon"
        return Symptom(
            "error", where, what, f"free space at {path}; what waits for it goes on by itself", Reason.TARGET_DISK_FULL
        )
    if free < LITTLE_BYTES and free < LITTLE_SHARE * whole:
        return Symptom("warn", where, told, f"free space at {path}, or move the region to a larger disk", Reason.TARGET_DISK_FULL)
    return Symptom("ok", where, told)
