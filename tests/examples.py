"""How many examples a property gets: as many as the profile says (conftest.py), or so many times as many."""

from hypothesis import settings


def examples(times: float) -> int:
    return max(1, round(settings().max_examples * times))
