"""What time a server says it is that speaks HTTP."""

from __future__ import annotations

import http.client
from contextlib import closing
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from geo.times import in_us

ANSWER_S = 5.0


def server_time_us(url: str) -> int | None:
    """To the second, in microseconds since 1970; None: it does not tell. One request, without keys."""
    place = urlsplit(url)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    try:
        with closing(kind(place.netloc, timeout=ANSWER_S)) as connection:
            connection.request("HEAD", "/")
            date = connection.getresponse().getheader("Date")
        return None if date is None else in_us(parsedate_to_datetime(date))
    except (OSError, http.client.HTTPException, ValueError):
        return None
