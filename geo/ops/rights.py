"""Tries what the keys of a cluster may do below its root on an object store: each verb. Only whoever asks for it has something
written, in a folder of its own, which is empty again at the end.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

from geo.coordination.first_use import is_probed
from geo.delta.probe import why_unfit
from geo.delta.store import Put, WritePath
from geo.ops.symptom import Symptom
from geo.text import first_line

_OF_ALL_VERBS = re.compile(r": no (answer|keys|trust): |NoSuchBucket|ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch")
"""Faults that are no right's, and are said of each verb: nothing more is asked then."""


def rights(root: WritePath, where: str, write_check: str, *, writes: bool) -> Iterator[Symptom]:
    """Tries what may be listed and read below a root. If it `writes` it also puts, puts if absent and deletes, and probes
    whether the store keeps what it promises of that. `write_check` is the verb that writes. Raises OSError where the store does
    not answer, does not know these keys or has no such bucket.
    """
    may: list[str] = []
    reads = (("list", "s3:ListBucket on the bucket", root.names), ("get", "s3:GetObject", (root / "store.json").get))
    for verb, right, ask in reads:
        yield from _tried(root, where, verb, right, ask, may)
    if not writes:
        if may:
            said = f"these keys may {' and '.join(may)}; whether they may write was not tried"
            yield Symptom("ok", where, said, write_check)
        if "get" in may:
            yield _condition_known(root, where, write_check)
        return
    folder = root / f"write-check-{uuid.uuid4()}"
    put, made = folder / "put", folder / "put-if-absent"
    yield from _tried(root, where, "put", "s3:PutObject", lambda: put.store.put(str(put), b"put"), may)
    yield from _tried(root, where, "put if absent", "s3:PutObject", lambda: _put_if_absent(made), may)
    left = [one for one in (put, made) if _is_left(one)]
    yield from _tried(root, where, "delete", "s3:DeleteObject", lambda: _delete(put, made), may)
    if "delete" not in may and left:
        yield Symptom("warn", where, f"what was put to try it stays: {', '.join(map(str, left))}", "delete it by other keys")
    if may:
        yield Symptom("ok", where, f"these keys may {', '.join(may)}")
    if len(may) == 5:
        yield from _condition_tried(root, where)


def _tried(root: WritePath, where: str, verb: str, right: str, ask: Callable[[], object], may: list[str]) -> Iterator[Symptom]:
    try:
        with suppress(FileNotFoundError):  # who may not read is not told that
            ask()
        may.append(verb)
    except OSError as error:
        if _OF_ALL_VERBS.search(str(error)):
            raise
        is_forbidden = isinstance(error, PermissionError)
        fix = (
            f"the right is {right}, for what is below the root" if is_forbidden else "try again; the store's own log may say more"
        )
        yield Symptom("error", where, f"cannot {verb} below {root}: {first_line(error)}", fix)


def _put_if_absent(place: WritePath) -> None:
    if place.store.put_if_absent(str(place), b"put if absent") is Put.UNKNOWN:
        raise OSError(f"no answer tells whether {place} was put")


def _delete(*places: WritePath) -> None:
    for place in places:
        place.delete()


def _is_left(place: WritePath) -> bool:
    """Tells whether the object is there, or may be."""
    try:
        return place.is_there()
    except OSError:
        return True


def _condition_known(root: WritePath, where: str, write_check: str) -> Symptom:
    if is_probed(root):
        return Symptom("ok", where, "the store kept put-if-absent when its first writer here tried it")
    what = "whether the store keeps put-if-absent is not known: nobody has tried it at this end point"
    return Symptom("warn", where, what, f"{write_check}; the first process that writes tries it too")


def _condition_tried(root: WritePath, where: str) -> Iterator[Symptom]:
    try:
        why = why_unfit(root)
    except OSError as error:
        yield Symptom("warn", where, f"whether the store keeps put-if-absent is not known: {first_line(error)}", "try again")
        return
    if why is None:
        yield Symptom(
            "ok", where, "the store keeps put-if-absent for eight writers at once, and a list shows at once what was put"
        )
    else:
        yield Symptom(
            "error", where, f"the store is not fit for logs: {why}", "use a store that keeps put-if-absent (If-None-Match: *)"
        )
