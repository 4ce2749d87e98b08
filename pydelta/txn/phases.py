"""Name the points of a transaction at which a test or monitor may intervene."""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["COMMIT", "PHASES", "POST_COMMIT", "PREPARE", "READ", "SILENT", "Observer", "Silent"]

READ: Final = "read"
"""The snapshot is chosen, but nothing was read from it yet."""
PREPARE: Final = "prepare"
"""``commit`` was called, but nothing was checked yet."""
COMMIT: Final = "commit"
"""A commit file is ready to be put. Occurs once per attempt."""
POST_COMMIT: Final = "post-commit"
"""The version is in the log, and hooks run next."""
PHASES: Final = (READ, PREPARE, COMMIT, POST_COMMIT)


class Observer(Protocol):
    """Called when a transaction reaches a phase. It may block. Raising an error ends the transaction there."""

    def at(self, phase: str) -> None:
        """Handle the start of ``phase``, one of ``PHASES``."""


class Silent:
    """An observer that does nothing."""

    def at(self, phase: str) -> None:
        """Do nothing."""


SILENT: Final = Silent()
