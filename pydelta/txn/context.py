"""Track the statement that a thread runs: the user it commits for and the versions it has committed."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from pydelta.errors import CommittedError, DeltaError, first_line

__all__ = ["author", "committing_for", "engine_info", "landed", "telling_what_landed"]

_AUTHOR: Final[ContextVar[str | None]] = ContextVar("pydelta_author", default=None)


@contextmanager
def committing_for(user: str | None) -> Iterator[None]:
    """Record a user in the commits that this thread makes within the block (``commitInfo.userName``).

    Args:
        user: A name, or None.
    """
    token = _AUTHOR.set(user)
    try:
        yield
    finally:
        _AUTHOR.reset(token)


def author() -> str | None:
    """Return the user that this thread commits for, or None."""
    return _AUTHOR.get()


@functools.cache
def engine_info() -> str:
    """Return engine name and version for the history, ``pydelta/0.1.0``."""
    try:
        return f"pydelta/{version('pydelta-lakehouse')}"
    except PackageNotFoundError:  # The program runs from a source tree that was never installed.
        return "pydelta/unknown"


_LANDED: Final[ContextVar[list[tuple[str, int]] | None]] = ContextVar("pydelta_landed", default=None)


def landed(table: str, version: int) -> None:
    """Record a committed version of a table for the statement that this thread runs."""
    noted = _LANDED.get()
    if noted is not None:
        noted.append((table, version))


@contextmanager
def telling_what_landed() -> Iterator[None]:
    """Convert an error after a commit so that it mentions the commit. Only commits directly in this block count.

    A ``DeltaError`` passes unchanged, because the code that raised it knew about the commit.

    Raises:
        CommittedError: Something else failed after a commit, for example because the cluster went away.
    """
    noted: list[tuple[str, int]] = []
    token = _LANDED.set(noted)
    try:
        yield
    except DeltaError:
        raise
    except Exception as error:
        if not noted:
            raise
        table, last = noted[-1]
        raise CommittedError(
            f"Version {last} was committed. What was to follow in the same statement failed: "
            f"{first_line(error) or type(error).__name__}",
            hint="Do not run it again before you have looked at the table's history. If Spark's session has ended, "
            "start another one.",
            table=table,
            version=last,
        ) from error
    finally:
        _LANDED.reset(token)
