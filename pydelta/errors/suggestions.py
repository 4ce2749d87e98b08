"""Find the known name that was probably meant by an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most similar to another one, ignoring case, or None if none is similar.

    Args:
        name: Name that a user wrote.
        known: Known names in their spelling.
        cutoff: Required similarity, from 0 to 1.

    Example:
        >>> nearest("appendonly", ["appendOnly", "checkpointInterval"])
        'appendOnly'
    """
    spelled = {item.lower(): item for item in known}
    close = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=cutoff)
    return spelled[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str, cutoff: float = 0.6) -> str:
    """Return the hint of an error about an unknown name.

    Args:
        name: Name that a user wrote.
        known: Known names in their spelling.
        otherwise: Hint if none of them is similar.
        cutoff: Required similarity, as in ``nearest``.
    """
    meant = nearest(name, known, cutoff=cutoff)
    return f"Did you mean {meant!r}?" if meant is not None else otherwise
