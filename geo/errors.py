"""The errors a caller can meet. One base; the type says whose fault it is and whether trying again helps.

Only exception classes live here. A message says what happened, on which topic, cluster or position, the stored and the given
value, and what the operator should do. `exit_code` is what the command line ends with: 1 failure, 2 usage or configuration, 3
refused as unsafe.
"""

from __future__ import annotations

from geo.reasons import Reason, Wrong


class GeoError(Exception):
    """Base of every error this package raises on purpose. `code`: why, by its type or as given where it is raised. Raised with a text, or with what is
    Wrong: then who looks tells what to do apart."""

    exit_code = 1
    code = Reason.OTHER

    def __init__(self, *args: object, code: Reason | None = None) -> None:
        super().__init__(*args)
        if code is not None:
            self.code = code
        elif args and isinstance(args[0], Wrong):
            self.code = args[0].code


class NoSparkError(Exception):
    """Spark is needed and is not to be started. No cluster is at fault, so this is no GeoError, of which a cluster's reader makes
    a finding."""

    exit_code = 2


class UsageError(GeoError):
    """The caller asked for something that cannot be done: a bad name, a bad DataFrame, an unknown cluster."""

    exit_code = 2
    code = Reason.USAGE


class ConfigError(UsageError):
    """The configuration file is wrong. Carries every finding at once, each with file and line."""

    code = Reason.CONFIG

    def __init__(self, findings: list[str]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(findings))


class InvalidNameError(UsageError):
    """A topic, cluster or producer name outside the grammar."""


class SetupError(GeoError):
    """This machine or session is not ready to run: no Java, a missing or wrong jar, a session without Delta."""

    exit_code = 2
    code = Reason.SETUP


class NotReplicatedError(GeoError):
    """The messages are in their own region, and not in time in those that were waited for. The publish did not fail, and is not
    to be repeated. `published` (geo.log.publisher.Published) is its result.
    """

    code = Reason.NOT_REPLICATED

    published: object = None


class NoProgressError(GeoError):
    """A link's source has news, and twice at the same place the link was at it for far too long. Nothing was skipped."""

    code = Reason.NOT_MOVING


class OffsetFileError(GeoError):
    """A file of offsets cannot be read, or cannot hold what is to be written."""


class UnsafeError(GeoError):
    """Refused because going on could lose, double or skip messages. Nothing was written."""

    exit_code = 3


class AlreadyOwnedError(UnsafeError):
    """Another living runner owns this link or producer."""

    code = Reason.OWNED_ELSEWHERE


class FencedError(UnsafeError):
    """This runner was replaced: another one took its link or producer over. It must stop and not come back."""

    code = Reason.FENCED


class OtherClusterError(UnsafeError):
    """The configuration calls a cluster by another one's name."""

    code = Reason.MISNAMED


class WrongClockError(UnsafeError):
    """This host's clock is not the storage's. It passes once the clock is set."""

    code = Reason.CLOCK


class SchemaError(UnsafeError):
    """A table's schema is newer than this program, is not ours, or would change in a way that is not additive."""

    code = Reason.SCHEMA


class NotThereError(SchemaError):
    """Something that a person named is not there, as a topic that has no log. Nothing was written."""

    exit_code = 2


class SourceChangedError(UnsafeError):
    """Messages that were already published or replicated were changed at their source: a position no longer means the same."""

    code = Reason.SOURCE_CHANGED


class RetryableError(GeoError):
    """A fault that may pass by itself: the caller may try again, nothing was lost."""


class LockedError(RetryableError):
    """Somebody commits to a table, and that was not to be waited for. Nothing was written."""

    code = Reason.LOCKED


class UnknownAnswerError(RetryableError):
    """A store did not say whether a commit was made. It may have been, or be made later: what it names stays, and whoever tries again
    looks for it first."""

    code = Reason.UNKNOWN_ANSWER


class DamagedError(RetryableError):
    """A file on a disk is not what was written into it. Whoever meets it tries again, so that all goes on by itself once
    somebody has put it back.
    """

    code = Reason.DAMAGED
