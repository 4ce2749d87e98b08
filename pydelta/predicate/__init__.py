"""Decide with conditions which files to read: parse or translate them, then prune.

::

    SQL text --parse_predicate----------+
    Catalyst --Tree--> Expr --prunable--+--> Expr --partition_mask--> true, false, null   (exact)
                                                  --skipping_mask---> may match, cannot   (loose)

    an expression that is not understood is Unknown and rules nothing out
"""

from pydelta.predicate.binding import value_of_text
from pydelta.predicate.expressions import (
    FALSE,
    TRUE,
    And,
    Column,
    Compare,
    Expr,
    In,
    IsNotNull,
    IsNull,
    Literal,
    Not,
    Or,
    TextTest,
    Unknown,
    columns,
    conjunction,
    has_unknown,
    is_partition_only,
    rename_columns,
    split_conjuncts,
)
from pydelta.predicate.masks import NotEvaluable, partition_mask, skipping_mask, skipping_masks
from pydelta.predicate.parsing import parse_predicate, parse_value

__all__ = [
    "FALSE",
    "TRUE",
    "And",
    "Column",
    "Compare",
    "Expr",
    "In",
    "IsNotNull",
    "IsNull",
    "Literal",
    "Not",
    "NotEvaluable",
    "Or",
    "TextTest",
    "Unknown",
    "columns",
    "conjunction",
    "has_unknown",
    "is_partition_only",
    "parse_predicate",
    "parse_value",
    "partition_mask",
    "rename_columns",
    "skipping_mask",
    "skipping_masks",
    "split_conjuncts",
    "value_of_text",
]
