"""Parse the table statements that Spark's parser does not know.

::

    text --is_ours--> no: Spark's parser first
         --parse----> Vacuum, Optimize, Restore … (statements.py), or an error that points at the token

This package only parses: ``pydelta.api.sql.own`` turns a statement into a command.
"""

from pydelta.api.sql.grammar.beginnings import is_ours, parse_statement

__all__ = ["is_ours", "parse_statement"]
