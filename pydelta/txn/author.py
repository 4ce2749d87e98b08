"""Note for whom this thread commits: a server's commits are its clients'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

__all__ = ["author", "committing_for"]

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
