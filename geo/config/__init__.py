"""Configurations: the frozen tree, the texts and files that it is read from. Users import `load` and `Config` from here."""

from geo.config.model import Config
from geo.config.reader import load

__all__ = ["Config", "load"]
