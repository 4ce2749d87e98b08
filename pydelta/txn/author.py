"""Name who commits: this engine, and the user for whom a thread of a server commits."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from typing import Final

__all__ = ["author", "committing_for", "engine_info"]

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
