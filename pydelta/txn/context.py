"""Keep what belongs to the statement that a thread runs: who commits, and what has been committed already."""

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
    """Let commits of this thread say in the block who asked for them (``commitInfo.userName``).

    Args:
        user: A name; None for nobody's.
    """
    token = _AUTHOR.set(user)
    try:
        yield
    finally:
        _AUTHOR.reset(token)


def author() -> str | None:
    """Return for whom this thread commits; None where nobody is named."""
    return _AUTHOR.get()


@functools.cache
def engine_info() -> str:
    """Name and version as the history shows them, ``pydelta/0.1.0``."""
    try:
        return f"pydelta/{version('pydelta-lakehouse')}"
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "pydelta/unknown"


_LANDED: Final[ContextVar[list[tuple[str, int]] | None]] = ContextVar("pydelta_landed", default=None)


def landed(table: str, version: int) -> None:
    """Note that a version of a table was committed, for the statement that this thread runs."""
    noted = _LANDED.get()
    if noted is not None:
        noted.append((table, version))


@contextmanager
def telling_what_landed() -> Iterator[None]:
    """Say of an error that passes through what had been committed before it, in this block and in none within it.

    A ``DeltaError`` passes as it is: who raised it on purpose knew of the commit.

    Raises:
        CommittedError: Something else failed after a commit: the cluster has gone, for one.
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
