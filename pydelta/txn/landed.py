"""Note what a statement has committed, so that an error after it does not read as if nothing had been."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from pydelta.errors import CommittedError, DeltaError, first_line

__all__ = ["landed", "telling_what_landed"]

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
        table, version = noted[-1]
        raise CommittedError(
            f"Version {version} was committed. What was to follow in the same statement failed: "
            f"{first_line(error) or type(error).__name__}",
            hint="Do not run it again before you have looked at the table's history. If Spark's session has ended, "
            "start another one.",
            table=table,
            version=version,
        ) from error
    finally:
        _LANDED.reset(token)
