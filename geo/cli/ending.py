"""Decides what a signal makes of a run of the command line. Pure; `signals.py` does it."""

from __future__ import annotations

from enum import Enum, auto


class AskedBy(Enum):
    """Origin of the request to end."""

    MANAGER = auto()
    """SIGTERM, of a service manager: it has time, which the manager measures."""
    PERSON = auto()
    """SIGINT, of a person who pressed Ctrl-C and waits."""


class Does(Enum):
    """Steps that follow a signal, in this order."""

    END_SOON = auto()
    """Say that it is stopping, and what a second Ctrl-C does. End the process some seconds from now, whatever still runs: as after a kill, the next
    start goes on."""
    END_UNTIDILY = auto()
    """End the process without leaving what it is at."""
    CANCEL = auto()
    """Cancel what Spark computes, again and again until then."""
    STOP = auto()
    """Let the running batches end, then stop."""
    RAISE = auto()
    """Leave what the main thread is at."""
    END_NOW = auto()
    """The same, and nothing is said any more."""


def on_signal(asked: AskedBy, interrupts: int, *, can_stop: bool, launches: bool) -> tuple[Does, ...]:
    """Decides what follows a signal after so many presses of Ctrl-C. `can_stop`: the run ends by itself when it is asked.
    `launches`: the main thread starts Spark: pyspark, if it is left, takes from the Java machine what that waits for, which
    then stays for ever.
    """
    if asked is AskedBy.MANAGER:
        return (Does.STOP,)
    if interrupts:
        return (Does.END_NOW,)
    if launches:
        return (Does.END_UNTIDILY,)
    return (Does.END_SOON, Does.STOP) if can_stop else (Does.END_SOON, Does.CANCEL, Does.RAISE)
