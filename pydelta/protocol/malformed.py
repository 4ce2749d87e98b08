"""List the exceptions that malformed JSON can raise.

Besides syntax errors and wrong types there are bytes that are not UTF-8, lone surrogates, numbers with more digits than
Python converts, and nesting deeper than its stack.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["MALFORMED_JSON", "reason"]

MALFORMED_JSON: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Exceptions of ``msgspec`` and ``json``, for ``except``."""


def reason(error: BaseException) -> str:
    """Describe what was wrong.

    Example:
        >>> reason(RecursionError("maximum recursion depth exceeded"))
        'it is nested too deeply'
    """
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
