"""Tries on the store itself whether it keeps what it says of put-if-absent and of lists.

Some that speak S3's API say that another one was there and still let several win, or pass the condition by. Two puts one after the other would not
show it.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from geo.delta.store import Put, WritePath

WRITERS, ROUNDS = 8, 20


def why_unfit(folder: WritePath) -> str | None:
    """Puts ROUNDS names, each by WRITERS at once, in a folder of its own below this one, which is empty again at the end. Returns what the store does
    that no log outlives.

    None: of each name one writer alone was told that it made it. Its content is what is read, and a list right after shows the name. Raises OSError
    as the store does.
    """
    probed = folder / f"probe-{uuid.uuid4()}"
    names = [f"{number:02}" for number in range(ROUNDS)]
    together = Barrier(WRITERS)
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            for name in names:

                def put(who: int, place: WritePath = probed / name) -> Put:
                    together.wait()
                    return place.store.put_if_absent(str(place), b"%d" % who)

                said = list(pool.map(put, range(WRITERS)))
                if (why := _of_one(probed / name, said)) is not None:
                    return why
                if name not in probed.names():
                    return "a list does not show what was put right before it"
        middle = ROUNDS // 2
        if probed.names() != names or probed.names(names[middle]) != names[middle + 1 :]:
            return "a list is not in the order of names, or does not begin where it is asked to"
        return None
    finally:
        for name in names:
            (probed / name).delete()


def _of_one(place: WritePath, said: list[Put]) -> str | None:
    won = [who for who, put in enumerate(said) if put is Put.MADE]
    if len(won) > 1:
        return f"of {len(said)} writers that put one name if it is absent {len(won)} were told that they made it"
    held = place.unchecked()
    if won and held != b"%d" % won[0]:
        return "a writer was told that it made a name, and what is there is another one's"
    if not won and Put.UNKNOWN not in said:
        return f"of {len(said)} writers that put one name if it is absent none was told that it made it"
    return None
