"""Name what decoding JSON raises over text that is not what it should be, however it is wrong.

Beside text that is no JSON, and values of other types: bytes that are not UTF-8, lone surrogates, numbers with more
digits than Python converts, and nesting deeper than its stack.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["MALFORMED_JSON", "reason"]

MALFORMED_JSON: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""For ``except``: of ``msgspec`` and of ``json``."""


def reason(error: BaseException) -> str:
    """Say in words what was wrong.

    Example:
        >>> reason(RecursionError("maximum recursion depth exceeded"))
        'it is nested too deeply'
    """
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
