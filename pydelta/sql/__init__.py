"""The statements on tables that Spark's parser does not know.

::

    text --is_ours--> no: Spark's parser first
         --parse----> Vacuum, Optimize, Restore … (statements.py), or an error that points at the token

What a statement does is not decided here: ``pydelta.spark.sql_dispatch`` binds it to a command.
"""

from pydelta.sql.parsing import is_ours, parse_statement
from pydelta.sql.statements import (
    Clone,
    ConvertToDelta,
    DescribeDetail,
    DescribeHistory,
    DropFeature,
    Fsck,
    Generate,
    Optimize,
    Reorg,
    Restore,
    Statement,
    TableName,
    Travel,
    Vacuum,
)

__all__ = [
    "Clone",
    "ConvertToDelta",
    "DescribeDetail",
    "DescribeHistory",
    "DropFeature",
    "Fsck",
    "Generate",
    "Optimize",
    "Reorg",
    "Restore",
    "Statement",
    "TableName",
    "Travel",
    "Vacuum",
    "is_ours",
    "parse_statement",
]
