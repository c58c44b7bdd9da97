"""How the ways of `./run trips` are counted."""

from __future__ import annotations

import sys

from geo.names import Topic
from geo.text import counted
from tests.trips import Entry, Trip, crossed, noted, returns, stays


def test_a_return_is_a_stay_in_a_file_that_was_left() -> None:
    way = [Entry(file, str(at), None) for at, file in enumerate("aabacb")]
    assert ["".join(entry.file for entry in stay) for stay in stays(way)] == ["aa", "b", "a", "c", "b"]
    assert (crossed(way), returns(way)) == (3, 2)


def test_each_function_counts_once_below_its_first_caller_and_what_has_the_value_is_marked() -> None:
    trip = Trip("a trip", "names", lambda value: value == "persistent://shop/web/clicks")
    with noted(trip):
        for _ in range(2):
            topic = Topic.parse("persistent://shop/web/clicks")
            counted(len(str(topic)), "character")
    counted(1, "message")
    assert sys.getprofile() is None
    names = [entry.name.split(".")[-1] for entry in trip.whole]
    assert names.count("parse") == names.count("counted") == 1
    assert "__str__" not in names
    by_name = dict(zip(names, trip.whole, strict=True))
    assert by_name["parse"].caller is None
    assert by_name["parse"] in trip.of_value
    assert by_name["counted"] not in trip.of_value
    assert trip.in_room == [], "a room is a folder"
