"""Keep tables in shape by policy: what a table is like, what it needs, and the book of what was done."""

from pydelta.tools.maintenance.decide import Action, Budget, decide
from pydelta.tools.maintenance.state import Kind, TableState

__all__ = ["Action", "Budget", "Kind", "TableState", "decide"]
