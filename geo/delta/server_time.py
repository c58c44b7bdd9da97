"""Time of a server that speaks HTTP, as it says."""

from __future__ import annotations

import http.client
from contextlib import closing
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from geo.asking import ask_all
from geo.errors import RetryableError
from geo.times import in_us

ANSWER_S = 5.0


def server_time_us(url: str) -> int | None:
    """To the second, in microseconds since 1970. None: it does not tell within ANSWER_S, or the environment says that a proxy leads there, whose
    own time that may be. One request, without keys."""
    place = urlsplit(url)
    if ({place.scheme, "all"} & getproxies().keys()) and not proxy_bypass(place.netloc.rpartition("@")[2]):
        return None
    # Each address of a name is tried for ANSWER_S, one after the other, and nobody bounds how long a name is looked up.
    try:
        return ask_all({url: partial(_asked, place)}, ANSWER_S)[url].result()
    except RetryableError:
        return None


def _asked(place: SplitResult) -> int | None:
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    try:
        with closing(kind(place.netloc, timeout=ANSWER_S)) as connection:
            connection.request("HEAD", "/")
            date = connection.getresponse().getheader("Date")
        return None if date is None else in_us(parsedate_to_datetime(date))
    except (OSError, http.client.HTTPException, ValueError):
        return None
