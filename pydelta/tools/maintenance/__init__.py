"""Maintain tables by policy: read their state, decide what they need, and keep a journal of what was done."""

from pydelta.tools.maintenance.decide import Action, DailyBudget, decide
from pydelta.tools.maintenance.state import ActionKind, MaintenanceState

__all__ = ["Action", "ActionKind", "DailyBudget", "MaintenanceState", "decide"]
