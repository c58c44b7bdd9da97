"""Reads of an object store: an object that is opened, and the lists of what is in a folder. Raises OSError for whatever the store says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from geo.delta.held_files import HeldFiles, ListedFiles
from geo.delta.object_files import PartsReader
from geo.delta.s3_bucket import NO_END, S3Bucket
from geo.delta.store import WHOLE_BYTES

_END_BYTES = 1024 * 1024
"""Bytes of the end of a file that are asked for first when it is opened."""


def put_us(found: Mapping[str, Any]) -> int:
    """Tells when an object was put, in microseconds since 1970."""
    return int(found["last_modified"].timestamp() * 1_000_000)


def open_object(o: Any, s3: S3Bucket, held: HeldFiles, path: str) -> pa.NativeFile:
    """Open an object by the library's module `o`. A small one is in memory then, and held; of a large one what is read is asked for."""
    key = s3.key(path)
    try:
        found = o.get(s3.store, key, options={"range": {"suffix": _END_BYTES}})
    except o.exceptions.GenericError as error:
        if not NO_END.search(str(error)):
            raise
        found = o.get(s3.store, key)
    size, content = found.meta["size"], bytes(found.bytes())
    if size > WHOLE_BYTES:
        return pa.PythonFile(PartsReader(lambda first, last: _range(s3, path, first, last), size, content), mode="r")
    if len(content) < size:  # whole from one answer: in its place may be another one by now
        found = o.get(s3.store, key)
        content = bytes(found.bytes())
    held.keep(path, found.meta["e_tag"], content)
    return pa.BufferReader(content)


def _range(s3: S3Bucket, path: str, first: int, last: int) -> Any:
    return s3.ask(lambda o: o.get_range(s3.store, s3.key(path), start=first, end=last))


def objects_below(s3: S3Bucket, folder: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Each object in a folder, or in one below it, by its name from there."""
    key = s3.key(folder)
    found = s3.ask(lambda o: [one for some in o.list(s3.store, key) for one in some])
    return [(one["path"].removeprefix(f"{key}/"), one) for one in found]


def folders_in(s3: S3Bucket, folder: str) -> set[str]:
    """The names of the folders in a folder."""
    found = s3.ask(lambda o: o.list_with_delimiter(s3.store, s3.key(folder))["common_prefixes"])
    return {one.rstrip("/").rpartition("/")[2] for one in found}


def has_any(s3: S3Bucket, folder: str) -> bool:
    """Tells whether there is a file in a folder, or in one below it."""
    return bool(s3.ask(lambda o: next(iter(o.list(s3.store, s3.key(folder), chunk_size=1)), [])))


def modified_us(s3: S3Bucket, lists: ListedFiles, folder: str) -> dict[str, int]:
    """Tells when each file in a folder was written last, by name: microseconds since 1970, of whole seconds."""
    if (below := lists.below(folder)) is not None:
        return {name: came_us for name, (_, came_us, _) in below.inside(folder).items()}
    return {name: put_us(one) for name, one in objects_below(s3, folder)}
