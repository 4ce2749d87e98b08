"""Re-export ``DeltaTable`` and its builders under the name that Delta users import them by."""

from __future__ import annotations

from pydelta.spark.session.wishes import watch_builders
from pydelta.table.builder import DeltaTableBuilder, IdentityGenerator
from pydelta.table.merge import DeltaMergeBuilder
from pydelta.table.optimize import DeltaOptimizeBuilder
from pydelta.table.table import DeltaTable

watch_builders()

__all__ = ["DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder", "IdentityGenerator"]
