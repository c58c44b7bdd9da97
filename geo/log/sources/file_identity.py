"""Tells the files of a source apart. One that was renamed, moved, compressed or linked goes on under its new name. One that was changed below what
was read of it is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from geo.errors import SourceChangedError
from geo.log.sources.files import Contents, SeenFile, beginnings, inode_of, name_of_inode, stem, tail_of
from geo.log.sources.packed import Stream
from geo.log.sources.source import Place, Position
from geo.text import counted

log = logging.getLogger(__name__)

SURE_BYTES = 4096
"""A file that begins with so many bytes of one that is gone is that one, whatever else it looks like."""

Other = tuple[str, Place, bool]
"""File of before that this one may be: a name, its place, and whether nothing but the second of its last change says so."""


class FileIdentity:
    """Tells files of one source apart, by inode, time, name and content. A place in a file is as `JsonLinesReader` has it."""

    def __init__(self) -> None:
        self.contents = Contents()
        """The hashes of what was read of each."""
        self.other_names: set[str] = set()
        """Files that are not read, since another name of theirs is. It was said of each."""

    def other_places(self, start: Position, listed: Mapping[str, SeenFile]) -> dict[str, list[Other]]:
        """Return, by file, what is known of it under other names: links, and names of before. What has two names that are both there is read under
        one of them, a known one or else the first. Whether a file has the content, too, the caller looks.

        A file that is known by its inode and did not grow must be as old as it was. The number of a file that was removed may be given to a new
        one. A file that is new here, or has another inode than it had, may be what another name leads to elsewhere. Or it was moved or compressed,
        if a name is gone and it is as old, or called nearly so (`Other`).
        """
        inodes: dict[tuple[int, int], str] = {}
        for file, seen in sorted(listed.items(), key=lambda one: (one[0] not in start, one[0])):
            if seen.inode and (other := inodes.setdefault((seen.device, seen.inode), file)) != file:
                if file not in self.other_names:
                    self.other_names.add(file)
                    log.warning("%s: is another name of %s, and is not read again", file, other)
            elif file in self.other_names:
                self.other_names.remove(file)
        read = {file: seen for file, seen in listed.items() if seen.inode and file not in self.other_names}
        of_inode = {seen.inode: file for file, seen in read.items()}
        new: dict[int | str, set[str]] = {}
        for name, seen in listed.items():
            if (file := inodes.get((seen.device, seen.inode), name)) in read and not _has_inode(start.get(file), read[file]):
                signs: list[int | str] = [seen.changed_s, *beginnings(name)]
                for sign in signs:
                    new.setdefault(sign, set()).add(file)
        found: dict[str, list[Other]] = {}
        for name, place in start.items():
            if len(place) < 5:
                continue
            then = SeenFile.of(place[4])
            if (file := of_inode.get(then.inode, name)) != name:
                grew = listed[file].size > (then.size if listed[file].is_packed else place[0])
                if grew or listed[file].stamp == place[4]:
                    found.setdefault(file, []).append((name, place, False))
                    continue
            if new and name not in listed:
                alike = new.get(stem(name), set())
                if (inode := inode_of(name)) is None:
                    moved = new.get(then.changed_s, set()) | alike
                else:
                    moved = {file for file in (inodes.get(inode),) if file is not None}
                for file in moved:
                    found.setdefault(file, []).append((name, place, file not in alike))
        return found

    def furthest(
        self, stream: Stream, file: str, own: Place | None, others: Sequence[Other], seen: SeenFile, size: int
    ) -> Place | None:
        """Return the furthest of the places that are known of a file, if the file is as it was read up to there. Raises SourceChangedError if it is
        not as it was read under its own name, or nobody can tell whether it is a new one.

        None: it is a new file.
        """
        if own is not None and not self._is_as_read(stream, file, own, seen, size):
            raise SourceChangedError(_changed(file, own))
        place = own
        for name, other, is_by_time in sorted(others, key=lambda one: -one[1][0]):
            if (place is not None and other[0] <= place[0]) or not self._is_as_read(stream, file, other, seen, size):
                continue
            is_sure = _is_that_file(seen, size, name, other, is_by_time=is_by_time)
            if other[0] < SURE_BYTES and is_sure is False:
                continue
            if other[0] < SURE_BYTES and is_sure is None:
                remedy = f"call it {name} again for one run" if size > other[0] else "remove it, since all of it was published"
                raise SourceChangedError(
                    f"{file}: begins with what was published of {name} ({counted(other[1], 'line')}), which is gone or replaced, so it may be that "
                    f"file. Nothing of it was published. If it is, {remedy}; if not, put a copy with a new time and a name that begins otherwise in its place."
                )
            level = logging.INFO if is_sure else logging.WARNING
            log.log(level, "%s: was published as %s up to line %d, and goes on from there", file, name, other[1])
            place = other
        return place

    def _is_as_read(self, stream: Stream, file: str, place: Place, seen: SeenFile, size: int) -> bool:
        """True if all of a file before a place is what it was when that was read. Of a place of before only its last bytes are known."""
        position, _, tail, *more = place
        if size < position or tail_of(stream, position) != tail:
            return False
        if not more or seen.stamp == more[1] or (size > position and self.contents.may_go_on(file, position)):
            return True
        return self.contents.at(stream, file, position, reread=True).digest == str(more[0])


def _has_inode(place: Place | None, seen: SeenFile) -> bool:
    """True if a file still is the one of which a place was noted, by its inode. Also for places of before, which do not say."""
    return place is not None and (len(place) < 5 or SeenFile.of(place[4]).inode == seen.inode)


def _is_that_file(seen: SeenFile, size: int, name: str, place: Place, *, is_by_time: bool) -> bool | None:
    """True if a file that begins with what was published as `name` is that file, by all but its content. A file that grows gets a new time, and a new
    file may get the inode of one that was removed.

    None: nobody can tell.
    """
    then = SeenFile.of(place[4])
    is_as_long = size in (place[0], then.size)
    if seen.stamp == place[4] or inode_of(name) == (seen.device, seen.inode) or (is_as_long and seen.is_as_old(then)):
        return True
    if not is_by_time:
        return None
    is_truncated = 1_000_000_000 * seen.changed_s in (seen.changed_ns, then.changed_ns)
    return None if is_as_long and is_truncated and seen.changed_s == then.changed_s else False


def _changed(file: str, place: Place) -> str:
    """Describe a file that is not what was read of it."""
    now = name_of_inode(file, SeenFile.of(place[4]).inode) if len(place) > 4 else None
    moved = "" if now is None else f" What was read is now called {now}."
    return (
        f"{file}: was changed below line {place[1] + 1}, which is where publishing had come to.{moved} Nothing was skipped or published. Give "
        "the new content a name of its own, or publish it with another --producer."
    )
