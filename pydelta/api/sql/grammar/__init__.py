"""Parse the statements on tables that Spark's parser does not know.

::

    text --is_ours--> no: Spark's parser first
         --parse----> Vacuum, Optimize, Restore … (statements.py), or an error that points at the token

What a statement does is not decided here: ``pydelta.api.sql.dispatch`` binds it to a command.
"""

from pydelta.api.sql.grammar.parsing import is_ours, parse_statement

__all__ = ["is_ours", "parse_statement"]
