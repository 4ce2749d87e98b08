"""Find the name that was probably meant by one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like another one, ignoring case; None where none is like it.

    Args:
        name: Somebody's spelling.
        known: Names as they are spelled.
        cutoff: From 0 to 1: how much alike they have to be.

    Example:
        >>> nearest("appendonly", ["appendOnly", "checkpointInterval"])
        'appendOnly'
    """
    spelled = {item.lower(): item for item in known}
    close = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=cutoff)
    return spelled[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str, cutoff: float = 0.6) -> str:
    """Return the hint of an error about a name that is not known.

    Args:
        name: Somebody's spelling.
        known: Names as they are spelled.
        otherwise: The hint where none of them is near.
        cutoff: See ``nearest``.
    """
    meant = nearest(name, known, cutoff=cutoff)
    return f"Did you mean {meant!r}?" if meant is not None else otherwise
