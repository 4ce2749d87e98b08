"""List the promises that a run is checked for, each with the damage if it does not hold."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["PROMISES", "Broken"]

PROMISES: Final[dict[str, tuple[str, str]]] = {
    "put-if-absent": (
        "Of writers that race to create one object, one wins",
        "Two transactions can overwrite each other, and rows are lost with no error.",
    ),
    "durable": ("No acknowledged commit is lost", "Rows that a job reported as written are not there."),
    "once": ("No operation is committed twice", "Rows are doubled when a job is run again after an error."),
    "failed": ("A failed operation left nothing behind", "A job that is run again after an error doubles its rows."),
    "gapless": ("Versions have no gap, and each can be read", "Readers stop at the gap, or refuse the table."),
    "immutable": (
        "A version never changes",
        "Readers that saw the first state continue from rows that no longer exist.",
    ),
    "effects": (
        "Each commit changes the rows that its operation says, and no other",
        "Rows are lost, doubled or come back.",
    ),
    "isolation": (
        "The commits have a serial order, as the table's isolation level says",
        "A change is computed from rows that another commit had changed: updates are lost, deleted rows stay.",
    ),
    "snapshot": (
        "Each read shows exactly one version",
        "Queries see half a commit, or rows that were never committed.",
    ),
    "fresh": (
        "A read sees what was acknowledged before it began",
        "A job does not find what the job before it wrote.",
    ),
    "times": ("Later versions have later times", "TIMESTAMP AS OF gives another version than the one meant."),
    "files": (
        "No file is deleted that a retained version needs",
        "Queries fail with a missing file; RESTORE and time travel are lost.",
    ),
    "checkpoints": (
        "A checkpoint shows the same files as the commits",
        "Rows depend on which checkpoint a reader takes.",
    ),
    "engines": ("Every engine sees the same rows", "Two tools answer one question differently."),
    "errors": (
        "Operations fail only because of a conflict or a temporary failure of the store",
        "Jobs end with errors that running them again does not fix.",
    ),
}
"""Maps names to promises and the cost of breaking them, in the order of the report."""


class Broken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A promise that did not hold.

    Args:
        promise: Its name.
        says: One or two sentences on what was seen.
        versions: Versions concerned.
        ops: Operations concerned.
    """

    promise: str
    says: str
    versions: tuple[int, ...] = ()
    ops: tuple[str, ...] = ()
