"""An object store that lets this process in, for who only looks: by pyarrow, which has no put-if-absent."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyarrow import fs

from geo.delta.store import Head


@dataclass(slots=True, eq=False)
class ArrowStore:
    """One store, with the keys of one cluster. Stores keep sums of their own, so nothing is held to any here."""

    files: fs.FileSystem

    @property
    def is_near(self) -> bool:
        return False

    def get(self, path: str) -> bytes:
        with self.files.open_input_stream(_key(path), compression=None) as stream:
            return bytes(stream.read())

    def open(self, path: str) -> pa.NativeFile:
        return self.files.open_input_file(_key(path))

    def head(self, path: str) -> Head | None:
        found = self.files.get_file_info(_key(path))
        if found.type != fs.FileType.File:
            return None
        return Head(found.size, found.mtime_ns // 1000, (found.size, found.mtime_ns))

    def is_there(self, path: str) -> bool:
        """By opening it, one request: of what is not there a question for it takes two."""
        try:
            self.open(path).close()
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str, after: str) -> list[str]:
        found = self.files.get_file_info(fs.FileSelector(_key(folder), allow_not_found=True))
        return sorted(one.base_name for one in found if one.type == fs.FileType.File and one.base_name > after)

    def check(self, path: str) -> None:
        pass

    def refuse_no_bucket(self, path: str) -> None:
        """Raises OSError where the bucket is away: to who lists it, it is as if there were no such folder."""
        bucket = _key(path).partition("/")[0]
        if self.files.get_file_info(bucket).type == fs.FileType.NotFound:
            raise OSError(f"there is no bucket {bucket} now")


def _key(path: str) -> str:
    return path.partition("://")[2]
