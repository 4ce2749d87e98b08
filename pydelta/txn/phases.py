"""Name the points of a transaction at which a test (or a monitor) may step in."""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["COMMIT", "PHASES", "POST_COMMIT", "PREPARE", "READ", "SILENT", "Observer", "Silent"]

READ: Final = "read"
"""The snapshot is chosen; nothing was read from it yet."""
PREPARE: Final = "prepare"
"""``commit`` was called; nothing was checked yet."""
COMMIT: Final = "commit"
"""A commit file is ready and is put next; comes once for each attempt."""
POST_COMMIT: Final = "post-commit"
"""The version is in the log; hooks come next."""
PHASES: Final = (READ, PREPARE, COMMIT, POST_COMMIT)


class Observer(Protocol):
    """Told when a transaction reaches a phase. May block; what it raises ends the transaction there."""

    def at(self, phase: str) -> None:
        """Observe that ``phase``, one of ``PHASES``, begins."""


class Silent:
    """An observer that does nothing."""

    def at(self, phase: str) -> None:
        """Do nothing."""


SILENT: Final = Silent()
