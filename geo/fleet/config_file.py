"""The configuration's file beside a broker that runs: whether it has changed, and what of it was taken."""

from __future__ import annotations

import time
from pathlib import Path

from geo.config.model import Config
from geo.config.reader import load, parse
from geo.streams import timetable


class ConfigFile:
    """A configuration's file. Its content when this object is made counts as taken."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._text = self._taken = self._refused = _read(path)
        """Content at the last look, and that which was taken and refused last; None: the file could not be read."""
        self._looked_at = time.monotonic()
        self._hurries = False

    def __str__(self) -> str:
        return self.path

    @property
    def config(self) -> Config:
        """Configuration of the last look. Raises ConfigError for what is none."""
        return load(self.path) if self._text is None else parse(self._text, path=self.path)

    def hurry(self) -> None:
        """Look at the next opportunity, and take what is there, also what was refused; callable from a signal handler."""
        self._hurries = True

    def has_changed(self) -> bool:
        """Tells whether `config` is to be taken now: `take` or `refuse` says what became of it. To be asked all the time."""
        now = time.monotonic()
        if now - self._looked_at < timetable.CONFIG_LOOK_S and not self._hurries:
            return False
        self._looked_at, hurries, self._hurries = now, self._hurries, False
        before, self._text = self._text, _read(self.path)
        if self._text == self._taken:
            return False
        # Unasked, what was refused is not tried again, nor what somebody may still be writing.
        return hurries or (self._text != self._refused and self._text == before)

    def take(self) -> None:
        self._taken = self._refused = self._text

    def refuse(self) -> None:
        """It is wrong: until it changes again, or somebody hurries, it is left alone."""
        self._refused = self._text


def _read(path: str) -> str | None:
    """The text of a file; None if it cannot be read, as while it is replaced."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
