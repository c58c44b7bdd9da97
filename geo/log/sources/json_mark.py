"""The text by which a source end of JSON lines says its place in the file: `bytes:lines:tail:hash:stamp`, as text and as SQL reads it. Pure.

Places of before have no hash and no stamp. A program of then does not read those that have: it would say that the file's end is not
known. So a table gets its newest version before the first of them is written (`is_newer`), by which such a program refuses it.
"""

from __future__ import annotations

import re

MARK = re.compile(r"(\d+):(\d+):([0-9a-f]*)(?::([0-9a-f]+):([0-9-]+))?")

SAME = "same:"
"""Begins a name by which a file is known whatever it is called: its stamp follows. Only files that ended are (geo.log.finished)."""

IS_MARKED = r'^\["[0-9]+","[0-9]+:[0-9]+:'
"""Pattern of a source end that is a JSON lines file's, for SQL."""

STAMP = r':([0-9]+-[0-9]+-[1-9][0-9]*)"\]$'
"""Pattern of the stamp in a source end, where that has an inode, for SQL."""

_NEWER = re.compile(IS_MARKED + r'[0-9a-f]*:[0-9a-f]+:[0-9-]+"\]$')


def is_newer(source_end: str | None) -> bool:
    """True if a source end says its place as no program of before reads it."""
    return source_end is not None and _NEWER.search(source_end) is not None
