"""Configurations: the frozen tree, the texts and files that it is read from."""

from geo.config.model import Config
from geo.config.reader import load, read

__all__ = ["Config", "load", "read"]
