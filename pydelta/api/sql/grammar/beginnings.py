"""Find statements that only this engine knows, by their first words, and import the parser with the first one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydelta.api.sql.grammar.statements import Statement

__all__ = ["is_ours", "parse_statement"]

_BLANK: Final = r"(?>\s|--[^\n]*(?:\n|$)|/\*.*?\*/)"  # Atomic, so a comment never backtracks.
_OURS: Final = re.compile(
    rf"{_BLANK}*(?:(?:VACUUM|GENERATE|OPTIMIZE|RESTORE|REORG|FSCK|CONVERT{_BLANK}+TO)\b"
    rf"|EXPLAIN{_BLANK}+(?:(?:EXTENDED|CODEGEN|COST|FORMATTED){_BLANK}+)?OPTIMIZE\b"
    rf"|(?:DESCRIBE|DESC){_BLANK}+(?:HISTORY|DETAIL){_BLANK}+[`'\"\w])",
    re.IGNORECASE | re.DOTALL,
)
_PERHAPS_OURS: Final = re.compile(
    rf"{_BLANK}*(?:CREATE\b.*\bCLONE\b|ALTER{_BLANK}+TABLE\b.*\b(?:DROP{_BLANK}+FEATURE|SYNC{_BLANK}+IDENTITY)\b)",
    re.IGNORECASE | re.DOTALL,
)


def is_ours(text: str, *, spark_refuses: bool = False) -> bool:
    """Return whether a statement begins like one that only this engine knows.

    Args:
        text: The statement.
        spark_refuses: Spark's parser has already failed on it, so keywords further on may decide.
    """
    return bool(_OURS.match(text) or (spark_refuses and _PERHAPS_OURS.match(text)))


def parse_statement(text: str) -> Statement:
    """Parse one statement. See ``parsing.parse_statement``."""
    from pydelta.api.sql.grammar import parsing

    return parsing.parse_statement(text)
