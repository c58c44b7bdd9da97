"""How many examples a property gets."""

from hypothesis import settings


def examples(times: float) -> int:
    """So many times as many as the profile says (conftest.py)."""
    return round(settings().max_examples * times)
