"""The `_delta_log` folder of a table, read by this process. Functions list its commits and checkpoints, read the newest, and cut it off below a
checkpoint. No Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from geo.delta.commits import Commit, checksum_file, commit_file, of_file
from geo.delta.store import ReadPath, WritePath, parquet, read_each
from geo.errors import DamagedError, RetryableError
from geo.now import now_s
from geo.reasons import Reason

_LOG_FILE = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_V2_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.[0-9a-f-]{36}\.(json|parquet)")
"""One file, which may name others in `_sidecars` (`delta.checkpointPolicy` = v2)."""

_COMPACTED = re.compile(r"\d{20}\.(\d{20})\.compacted\.json")
_FEW = 16
"""Files of a store that is far that are asked for at once, be they there or not."""

_LISTED_AGAIN = 8
"""So many versions that were seen before are listed with newer ones, in the same request. Of those that are held nothing is asked for then."""

_OF_A_VERSION = re.compile(r"\.?(\d{20})\.")

SIDECARS = "_sidecars"
"""The folder of the files that checkpoints of v2 may name."""

POINTER = "_last_checkpoint"
"""The file that says where the newest checkpoint is."""

LOOK_BACK = 500
"""Commits that are read for a table's metadata; a table of Delta's own has it in the newest checksum."""


_SIDECAR_S = 24 * 3600.0
"""The age from which on a file that no checkpoint names is left from one that was removed, or from a writer that died. Delta's own
clean-up waits as long."""


@dataclass(frozen=True, slots=True)
class LogFolder:
    """Content of a `_delta_log`: versions with a commit, in order, and with a whole checkpoint. That is of the classic kind (one file, or all its
    parts), or of v2. `files` by version: commits, checksums, checkpoints, and Hadoop's checksums of them.
    """

    commits: tuple[int, ...]
    checkpoints: tuple[int, ...]
    files: Mapping[int, tuple[str, ...]]

    @property
    def newest(self) -> int:
        """-1 without any commit."""
        return self.commits[-1] if self.commits else -1


_newest: dict[ReadPath, int] = {}
"""Newest version, by `_delta_log`, that this process has seen in it."""


def newest_seen(folder: ReadPath) -> int:
    """The newest version that this process has seen when it looked last; -1 before."""
    return _newest.get(folder, -1)


def seen_newest() -> list[tuple[ReadPath, int]]:
    """Each log that this process has looked at, with `newest_seen`."""
    return list(_newest.items())


def saw(folder: ReadPath, version: int) -> None:
    """Take note that this version is the newest."""
    _newest[folder] = version


def newest_version(folder: ReadPath) -> int | None:
    """The newest version that has a commit; None: there is no commit.

    A log on a local disk is listed once. Then it is asked by name whether the newest commit is there that was seen before, and which ones follow
    it. Versions have no gaps, unless an older copy was put over a log. Of 20,000 commits a list takes 0.1 s.
    """
    seen = _newest.get(folder)
    if not folder.store.is_near:  # a list is one request, and names are several
        found = sorted(_committed(folder, f"{max(0, seen - _LISTED_AGAIN):020}")) if seen is not None else []
        if seen not in found:  # not seen yet, or cut off meanwhile
            found = sorted(_committed(folder))
        return _seen(folder, found[-1] if found else None)
    newest = None if seen is None or not has_commit(folder, seen) else _last_behind(folder, seen)
    # It may be cut off meanwhile; and what is behind a gap is newer.
    if newest is None or not has_commit(folder, newest) or newest_checkpoint(folder)[0] > newest:
        newest = max(_committed(folder), default=None)
    return _seen(folder, newest)


def _seen(folder: ReadPath, newest: int | None) -> int | None:
    if newest is None:
        _newest.pop(folder, None)
    else:
        saw(folder, newest)
    return newest


def _last_behind(folder: ReadPath, there: int) -> int:
    """The last of the versions without a gap that begin with one that is there: by steps that double, then by halves."""
    step = 1
    while has_commit(folder, there + step):
        there += step
        step *= 2
    gone = there + step
    while there + 1 < gone:
        middle = (there + gone) // 2
        there, gone = (middle, gone) if has_commit(folder, middle) else (there, middle)
    return there


def has_commit(folder: ReadPath, version: int) -> bool:
    """Tells whether a commit is there, by its name alone."""
    return folder.has(commit_file(version))


def newest_checkpoint(folder: ReadPath) -> tuple[int, list[str]]:
    """Version and files of the newest checkpoint, as the log says; -1 if it says of none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads((folder / POINTER).unchecked())  # others write it, and leave the sums that were there
        version, parts = int(found["version"]), found.get("parts")
        if parts is None:
            return version, [f"{version:020}.checkpoint.parquet"]
        return version, [f"{version:020}.checkpoint.{part:010}.{parts:010}.parquet" for part in range(1, parts + 1)]
    return -1, []


def checksum_at(folder: ReadPath, version: int) -> dict[str, Any]:
    """Reads the checksum that Delta leaves beside a commit. Raises ValueError, and as `ReadStore.get`."""
    found: dict[str, Any] = json.loads((folder / checksum_file(version)).get())
    return found


def newest_metadata(folder: ReadPath, newest: int) -> dict[str, Any] | None:
    """The table's metadata at its newest version, from the checksum file that Delta leaves beside a commit or from the commits themselves. None if
    it is too far back (a writer without checksums)."""
    for version in range(newest, max(-1, newest - LOOK_BACK), -1):
        with suppress(FileNotFoundError, ValueError, KeyError, DamagedError):
            return dict(checksum_at(folder, version)["metadata"])
        with suppress(FileNotFoundError):
            for line in (folder / commit_file(version)).lines():
                if line.startswith('{"metaData"'):
                    try:
                        return dict(json.loads(line)["metaData"])
                    except (ValueError, KeyError):
                        raise RetryableError(
                            f"the file of commit {version} in {folder} is not whole", code=Reason.DAMAGED
                        ) from None
    return None


def metadata_before(folder: ReadPath, version: int) -> dict[str, Any] | None:
    """The table's metadata before a version; None where there was no table, or that cannot be told any more."""
    with suppress(OSError, RetryableError, pa.ArrowException):
        return newest_metadata(folder, version - 1)
    return None


def count_data_files(folder: ReadPath) -> int | None:
    """Counts the data files of the newest version, as its checksum says; None if it has none (yet)."""
    newest = newest_version(folder)
    if newest is None:
        return None
    with suppress(FileNotFoundError, ValueError, KeyError, DamagedError):
        return int(checksum_at(folder, newest)["numFiles"])
    return None


def opened_commits(folder: ReadPath, first: int, last: int) -> Iterator[Commit]:
    """The commits `first` to `last`, oldest first, those that are there."""
    is_cheap = not folder.store.is_near and last - first < _FEW
    if first < last and not is_cheap and not has_commit(folder, first):
        first = first_commit(folder, first, last)
    versions = range(first, last + 1)
    read = read_each(folder.store, versions, lambda version: (folder / commit_file(version)).lines())
    for version, lines in zip(versions, read, strict=True):
        if lines is not None:
            commit = of_file(version, lines)
            yield commit if commit.columns is None else commit.since(metadata_before(folder, version))


def first_commit(folder: ReadPath, first: int, last: int) -> int:
    """The first version from `first` to `last` that is there; `last` + 1 if none is."""
    return min((version for version in _committed(folder) if first <= version <= last), default=last + 1)


def _committed(folder: ReadPath, after: str = "") -> Iterator[int]:
    """The versions that have a commit, in no order, among the names after one."""
    for name in folder.names(after):
        if found := _LOG_FILE.fullmatch(name):
            yield int(found[1])


def commit_stamp(folder: ReadPath, version: int) -> Hashable:
    """Stamp of the file of a commit, by which it differs from any other that may take its place, without reading it. None if it is not there."""
    found = (folder / commit_file(version)).head()
    return None if found is None else found.stamp


def committed_before(folder: ReadPath, commits: tuple[int, ...], time_s: float) -> int:
    """The newest of these versions whose commit came before that time (in seconds since 1970); -1 if none did.

    By halving: times of files grow with their versions, but for what was copied.
    """
    least, most = 0, len(commits)
    while least < most:
        middle = (least + most) // 2
        found = (folder / commit_file(commits[middle])).head()
        before = found is None or found.modified_us / 1e6 < time_s
        least, most = (middle + 1, most) if before else (least, middle)
    return commits[least - 1] if least else -1


def read_folder(folder: ReadPath) -> LogFolder:
    """Reads what is there now."""
    commits: list[int] = []
    files: dict[int, list[str]] = {}
    for name in folder.names():
        if found := _LOG_FILE.fullmatch(name):
            commits.append(int(found[1]))
        if found := _COMPACTED.fullmatch(name.removeprefix(".").removesuffix(".crc")) or _OF_A_VERSION.match(name):
            files.setdefault(int(found[1]), []).append(name)
    checkpoints = sorted(version for version, names in files.items() if checkpoint_files(names))
    return LogFolder(tuple(sorted(commits)), tuple(checkpoints), {version: tuple(names) for version, names in files.items()})


def checkpoint_files(names: Collection[str]) -> list[str]:
    """Those of the files of one version that make a whole checkpoint: one file, all parts, or one of v2, which may name others. None if there is no
    such. Parts of which others are missing are of a writer that died, or is still at it."""
    parts: dict[int, list[str]] = {}
    for name in names:
        if found := _CHECKPOINT.fullmatch(name):
            parts.setdefault(int(found[3] or 0), []).append(name)
    whole = [some for count, some in sorted(parts.items()) if len(some) == max(1, count)]
    return whole[0] if whole else [name for name in names if _V2_CHECKPOINT.fullmatch(name)][:1]


def sidecar_name(sidecar: Mapping[str, Any]) -> str:
    """The name in SIDECARS of a file that a checkpoint names."""
    return unquote(sidecar["path"]).rpartition("/")[2]


def remove_below(folder: WritePath, found: LogFolder, version: int) -> int:
    """Remove all files of versions below `version`, which must have a checkpoint: the commits last, oldest first, as Delta's own clean-up
    does. Wherever it ends, what stays is without a gap. Returns how many commits went. 0: nothing goes."""
    assert version == 0 or version in found.checkpoints
    named = _sidecars(folder, found, version)
    # What stays has to be there when they are not.
    stays = [*(folder / name for name in found.files.get(version, ())), *(folder / SIDECARS / name for name in named)]
    folder.store.write_out([*map(str, stays), str(folder)])
    goes = [name for old, names in found.files.items() if old < version for name in names]
    folder.store.delete_all([str(folder / name) for name in goes if not _LOG_FILE.fullmatch(name)])
    for name in sorted(filter(_LOG_FILE.fullmatch, goes)):
        (folder / name).delete()
    if version:
        _remove_sidecars(folder, keep=named)
    return sum(commit < version for commit in found.commits)


def _sidecars(folder: ReadPath, found: LogFolder, version: int) -> set[str]:
    """Names of the files in `_sidecars` that the checkpoints of a version and later ones name."""
    named: set[str] = set()
    if not (folder / SIDECARS).names():
        return named
    for name in (name for at, names in found.files.items() if at >= version for name in names):
        if not (_V2_CHECKPOINT.fullmatch(name) or _CHECKPOINT.fullmatch(name)):  # other writers give one of v2 a classic name
            continue
        if name.endswith(".json"):
            actions = [json.loads(line) for line in (folder / name).lines() if line.strip()]
        else:
            file = parquet(folder / name)
            actions = file.read(["sidecar"]).to_pylist() if "sidecar" in file.schema_arrow.names else []
        named.update(sidecar_name(one["sidecar"]) for one in actions if one.get("sidecar"))
    return named


def _remove_sidecars(folder: WritePath, *, keep: Collection[str]) -> None:
    """Remove the files in `_sidecars` that no checkpoint names, but for young ones, whose checkpoint may be on its way."""
    named = folder / SIDECARS
    for name in named.names():
        if name.endswith(".parquet") and name[0] != "." and name not in keep:
            found = (named / name).head()
            if found is not None and now_s() - found.modified_us / 1e6 > _SIDECAR_S:
                (named / name).delete()
