"""Small files of this program's own beside the tables: fences, notes of positions, and rows that were rejected.

They are written on a local disk by the operating system, on S3 by the port. Elsewhere Spark writes them, which has the credentials and needs no JVM
handle for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from geo.crash import CrashPoint, reach
from geo.delta.driver import Driver
from geo.delta.object_reads import has_any
from geo.delta.store import Put
from geo.disk import local_path, sync
from geo.late import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def check_folder(location: str) -> None:
    """Raises OSError if a location on a local disk, or one above it, is no folder. One that is missing was never made."""
    if (local := local_path(location)) is None:
        return
    nearest = next((place for place in (local, *local.parents) if place.exists()), Path("/"))
    if not nearest.is_dir():
        raise NotADirectoryError(f"{nearest} is not a folder")


def remove_folder(location: str) -> bool:
    """Remove a folder of a local disk with all that is in it, at once for whoever looks: it gets another name first. False
    elsewhere: nothing was done. Idempotent, and it ends what a process began that died in it."""
    if (local := local_path(location)) is None:
        return False
    going = _going(local)
    if going.exists():
        shutil.rmtree(going)
    if local.exists():
        local.rename(going)
        reach(CrashPoint.FOLDER_RENAMED)
        shutil.rmtree(going)
    return True


def is_partly_removed(location: str) -> bool:
    """Tells whether a process died that was removing this folder."""
    local = local_path(location)
    return local is not None and _going(local).exists()


def _going(local: Path) -> Path:
    return local.with_name(f".{local.name}.removed")  # what no topic, producer or cluster is called


class SmallFiles:
    """Files of a few lines. On storage that Spark alone reaches a file is a folder with one text file of Spark's in it. So it is where an earlier
    version wrote S3. Any text reader of Spark's reads both by the same path.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def create(self, path: str, line: str) -> bool:
        """Create the file, which nobody else creates: its name has something drawn in it. Durable when this returns. False: the store does not
        say whether it was made; it may be, at any time."""
        if (port := self._driver.port_at(path)) is not None:
            # Asked once: a second request could come when somebody has removed the file. One that is there was made, and is so once.
            return port.put_if_absent(path, _text([line])) is Put.MADE or port.is_there(path)
        if (local := local_path(path)) is None:
            self._driver.spark.createDataFrame([(line,)], "value STRING").coalesce(1).write.mode("errorifexists").text(path)
            return True
        local.parent.mkdir(parents=True, exist_ok=True)
        _write(local, "x", [line])
        sync(local.parents)
        return True

    def replace(self, path: str, lines: Sequence[str]) -> None:
        """Make the file, or overwrite it: afterwards it has these lines."""
        if (port := self._driver.port_at(path)) is not None:
            port.put(path, _text(lines))
            return
        if (local := local_path(path)) is None:
            rows = self._driver.spark.createDataFrame([(line,) for line in lines], "value STRING")
            rows.coalesce(1).write.mode("overwrite").text(path)
            return
        local.parent.mkdir(parents=True, exist_ok=True)
        new = local.with_name(f".{local.name}.new")
        _write(new, "w", lines)
        new.replace(local)
        sync([local.parent])

    def lines(self, path: str) -> list[str]:
        """The lines of the file; none if there is no such file."""
        if (local := local_path(path)) is not None:
            try:
                return local.read_text(encoding="utf-8").splitlines()
            except FileNotFoundError:
                return []
        if (port := self._driver.port_at(path)) is not None:
            try:
                return port.get(path).decode().splitlines()
            except FileNotFoundError:  # it may be as Spark wrote it
                parts = (port.get(f"{path}/{part}").decode() for part in port.below(path, least_bytes=1))
                return [line for part in parts for line in part.splitlines()]
        return [row[0] for row in self._rows(path, lambda lines: lines) or ()]

    def written_us(self, path: str) -> int | None:
        """Tells when the storage says that the file was written, in microseconds since 1970; None if there is no such file."""
        if (local := local_path(path)) is not None:
            try:
                return local.stat().st_mtime_ns // 1000
            except FileNotFoundError:
                return None
        if (port := self._driver.port_at(path)) is not None:
            return None if (found := port.head(path)) is None else found.modified_us
        rows = self._rows(path, lambda lines: lines.selectExpr("unix_micros(_metadata.file_modification_time)").limit(1))
        return rows[0][0] if rows else None

    def exists(self, path: str) -> bool:
        if (local := local_path(path)) is not None:
            return local.exists()
        if (port := self._driver.port_at(path)) is not None:
            return port.is_there(path) or bool(port.below(path, least_bytes=1))
        return bool(self._rows(path, lambda lines: lines.limit(1)))

    def remove(self, path: str) -> None:
        """Remove the file; one that is not there is no fault."""
        if (local := local_path(path)) is not None:
            local.unlink(missing_ok=True)
        elif (port := self._driver.port_at(path)) is not None:
            port.delete_all([path, *(f"{path}/{part}" for part in port.below(path))])
        elif self.exists(path):
            # What Spark can do on every storage: replace the folder's content by nothing.
            self._driver.spark.createDataFrame([], "value STRING").write.mode("overwrite").text(path)

    def remove_where(self, folder: str, is_gone: Callable[[str], bool]) -> None:
        """Remove the files of a folder whose names are such."""
        if (port := self._driver.port_at(folder)) is not None:  # one list has them all, also those in folders of Spark's
            paths = [path for path in port.below(folder) if is_gone(path.partition("/")[0])]
            port.delete_all([f"{folder}/{path}" for path in paths])
            return
        for name in filter(is_gone, self.names(folder)):
            self.remove(f"{folder}/{name}")

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder; none if there is no such folder."""
        if (local := local_path(folder)) is not None:
            return sorted(path.name for path in local.iterdir()) if local.is_dir() else []
        if (port := self._driver.port_at(folder)) is not None:
            return sorted({path.partition("/")[0] for path in port.below(folder, least_bytes=1)})
        # Of the lines, since a file that was removed is still a folder with an empty file in it.
        found = self._rows(folder, lambda lines: lines.select("_metadata.file_path").distinct(), recursiveFileLookup="true")
        # <folder>/<name>/part-00000-….txt
        return sorted({row[0].rsplit("/", 2)[1] for row in found or ()})

    def plain_names(self, folder: str) -> list[str] | None:
        """The names of the files that another program wrote into a folder, without its hidden ones; None if there is no such
        folder. Where Spark lists, a file without a line is left out."""
        if (local := local_path(folder)) is not None:
            return sorted(path.name for path in local.iterdir() if path.name[0] not in "._") if local.is_dir() else None
        if (port := self._driver.port_at(folder)) is not None:
            return [name for name in port.names(folder, "") if name[0] not in "._"] or None
        found = self._rows(folder, lambda lines: lines.select("_metadata.file_name").distinct())
        return None if found is None else sorted(row[0] for row in found)

    def remove_folder(self, location: str) -> bool:
        """Removes as `remove_folder`; on a store that this program writes not at once: a log goes first, and then the files that it names."""
        if (port := self._driver.port_at(location)) is None:
            return remove_folder(location)
        paths = port.below(location)
        for is_log in (True, False):
            port.delete_all([f"{location}/{path}" for path in paths if ("_delta_log/" in path) == is_log])
        return True

    def is_partly_removed(self, location: str) -> bool:
        """Tells whether a process died that was removing this folder of a table, or something else of it is there."""
        port = self._driver.port_at(location)
        return is_partly_removed(location) if port is None else has_any(port.s3, location)

    def _rows(self, path: str, of: Callable[[DataFrame], DataFrame], **options: str) -> list[Row] | None:
        """Rows of the lines of a file, or of all in a folder; None if there is none."""
        try:
            return of(self._driver.spark.read.options(**options).text(path)).collect()
        except spark_errors.AnalysisException:
            return None


def _write(path: Path, mode: str, lines: Sequence[str]) -> None:
    """Write a file whose content is durable when this returns."""
    with open(path, mode + "b") as file:
        file.write(_text(lines))
    sync([path])


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
