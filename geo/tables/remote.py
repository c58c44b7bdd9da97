"""Files of tables on an object store, read by this process without Spark: for who only looks and would wait for Spark to start.

So far on S3, by pyarrow and `deltalake`, with the credentials of the configuration. Where it says how to reach the store in a way
that is known to Spark alone, and where the store does not let this process in, Spark is asked.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pyarrow import fs

from geo.config.model import Cluster
from geo.config.secret import Secret
from geo.config.spark_conf import s3_settings
from geo.locations import authority_of, storage_of
from geo.text import first_line

log = logging.getLogger(__name__)

_OF_KEYS = ("SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider")
_OF_THE_MACHINE = (
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "DefaultCredentialsProvider",
)
_ANONYMOUS = "AnonymousAWSCredentialsProvider"

_KEYS = {"access_key": "access.key", "secret_key": "secret.key", "session_token": "session.token"}
"""By their names for pyarrow: settings of Hadoop's."""
_AS_DELTALAKE = {"access_key": "access_key_id", "secret_key": "secret_access_key"}

_KNOWN_TO_SPARK = (
    "proxy.",
    "assumed.role.",
    "security.credential.",
    "encryption.",
    "requester.pays.",
    "custom.signers",
    "delegation.",
)
"""How settings begin that say how the store is reached in a way that is not known here."""

_AT_ONCE, _HELD = 16, 256
"""Files that are read at once, and that are held."""


@dataclass(frozen=True, slots=True)
class Store:
    """A store that lets this process in: its files, and what `deltalake` needs for the same."""

    files: fs.FileSystem
    options: Mapping[str, str]


class RemotePath:
    """A file or folder of a store: of `pathlib.Path` what reading a table needs."""

    def __init__(self, store: Store, location: str) -> None:
        self.store, self._location = store, location

    def __str__(self) -> str:
        return self._location

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.store, f"{self._location}/{name}")

    @property
    def parent(self) -> RemotePath:
        return RemotePath(self.store, self._location.rpartition("/")[0])

    def exists(self) -> bool:
        return bool(self.store.files.get_file_info(self._path).type != fs.FileType.NotFound)

    def open_binary(self) -> Any:
        """For reads here and there in it. Raises FileNotFoundError."""
        return self.store.files.open_input_file(self._path)

    def open(self, encoding: str = "utf-8") -> TextIO:
        return io.StringIO(self.read_text(encoding))

    def read_text(self, encoding: str = "utf-8") -> str:
        with self.store.files.open_input_stream(self._path, compression=None) as stream:
            return bytes(stream.read()).decode(encoding)

    def names(self) -> list[str]:
        """Of the files in a folder; none if it is not there."""
        found = self.store.files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return [one.base_name for one in found if one.type == fs.FileType.File]

    @property
    def _path(self) -> str:
        return self._location.partition("://")[2]


Place = Path | RemotePath
"""Of a file or folder that this process reads."""


def store_of(cluster: Cluster) -> Store | None:
    """The store of a cluster's tables, once it has let this process in; None if it does not, or Spark is to read it. Raises
    UsageError for a secret that is not there."""
    root = cluster.root or ""
    if storage_of(root) != "s3a" or not hasattr(fs, "S3FileSystem"):
        return None
    settings = s3_settings(cluster.spark_conf, authority_of(root))
    said = {name: value.reveal() if isinstance(value, Secret) else value for name, value in settings.items()}
    provider = said.get("aws.credentials.provider", "").rpartition(".")[2]
    if any(name.startswith(_KNOWN_TO_SPARK) for name in said) or provider not in ("", _ANONYMOUS, *_OF_KEYS, *_OF_THE_MACHINE):
        return None
    keys = _KEYS if provider in ("", *_OF_KEYS) else {}
    given = {name: said[setting] for name, setting in keys.items() if said.get(setting)}
    by_path, encrypted = _is_true(said, "path.style.access", False), _is_true(said, "connection.ssl.enabled", True)
    scheme, _, host = said.get("endpoint", "").rpartition("://")
    scheme = scheme or ("https" if encrypted else "http")
    region, anonymous = said.get("endpoint.region"), provider == _ANONYMOUS
    try:
        files = fs.S3FileSystem(
            **given,
            anonymous=anonymous,
            region=region,
            scheme=scheme,
            endpoint_override=host or None,
            force_virtual_addressing=bool(host) and not by_path,
        )
        if files.get_file_info(authority_of(root)).type is fs.FileType.NotFound:
            return None  # without a bucket nothing would be found, and Spark says what that means
    except OSError as error:
        log.info("%s is left to Spark: %s", root, first_line(error))
        return None
    options = {f"aws_{_AS_DELTALAKE.get(name, name)}": value for name, value in given.items()}
    options |= {"aws_allow_http": str(scheme == "http").lower(), "aws_skip_signature": str(anonymous).lower()}
    options |= {"aws_virtual_hosted_style_request": str(not by_path).lower()} if host else {}
    options |= {"aws_endpoint_url": f"{scheme}://{host}"} if host else {}
    return Store(files, options | ({"aws_region": region} if region else {}))


def _is_true(said: Mapping[str, str], name: str, default: bool) -> bool:
    return said.get(name, str(default)).strip().lower() == "true"


def names_in(folder: Place) -> list[str]:
    """Of the files, and on a local disk of the folders. Raises FileNotFoundError or NotADirectoryError on a local disk."""
    return os.listdir(folder) if isinstance(folder, Path) else folder.names()


def opened(place: Place) -> Any:
    """A Parquet file, as pyarrow takes it."""
    return place if isinstance(place, Path) else place.open_binary()


def lines_of(folder: Place, names: Sequence[str]) -> Iterator[Iterable[str] | None]:
    """Of each file in a folder its lines, None if it is not there: in order, of a store some at once."""
    if isinstance(folder, Path):
        for name in names:
            with ExitStack() as opened_one:
                lines = None
                with suppress(FileNotFoundError):
                    lines = opened_one.enter_context(open(folder / name, encoding="utf-8"))
                yield lines
        return

    def read(name: str) -> Iterable[str] | None:
        with suppress(FileNotFoundError):
            return (folder / name).read_text().split("\n")  # not `splitlines`: a text in it may have other ends of lines
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for first in range(0, len(names), _HELD):
            yield from pool.map(read, names[first : first + _HELD])
