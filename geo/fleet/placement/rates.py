"""From how much was done so far to how much is done per second, by bundle. Pure: no Spark, clock, random or I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from geo.fleet.placement.load_data import BundleLoad


class Rates:
    """Of one broker. What comes into a log counts as coming in; what is read from it is read by others and costs this broker nothing, so
    nothing goes out."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._at: float | None = None

    def sample(
        self,
        messages: Mapping[str, int],
        bundles: Iterable[str],
        bundle_of: Callable[[str], str],
        size_of: Callable[[str], float],
        now: float,
    ) -> dict[str, BundleLoad]:
        """The load of each of the bundles since the last sample. `messages`: how many each topic got so far from this broker, of all topics for
        which it does something. `size_of`: how many bytes a message of a topic takes, asked of those that got some."""
        took = None if self._at is None else now - self._at
        found = {bundle: [0.0, 0.0, 0] for bundle in bundles}
        for topic, count in messages.items():
            if (of := found.get(bundle_of(topic))) is None:
                continue
            of[2] += 1
            fresh = count - self._before.get(topic, count)  # one that was not asked for lately may have much behind it
            if took and fresh > 0:
                rate = fresh / took
                of[0] += rate
                of[1] += rate * size_of(topic)
        self._before, self._at = dict(messages), now
        return {bundle: BundleLoad(rate, 0.0, size, 0.0, int(topics)) for bundle, (rate, size, topics) in found.items()}
