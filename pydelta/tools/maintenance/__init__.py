"""Keep tables in shape by policy: what a table is like, what it needs, and the book of what was done."""

from pydelta.tools.maintenance.decide import Action, DailyBudget, decide
from pydelta.tools.maintenance.state import ActionKind, MaintenanceState

__all__ = ["Action", "ActionKind", "DailyBudget", "MaintenanceState", "decide"]
