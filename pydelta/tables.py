"""Re-export ``DeltaTable`` and its builders under the name from which Delta users import them."""

from __future__ import annotations

import pydelta.engines.spark  # noqa: F401 - refuses a lacking or unsupported Spark before it is imported
from pydelta.api.python.builder import DeltaTableBuilder, IdentityGenerator
from pydelta.api.python.merge import DeltaMergeBuilder
from pydelta.api.python.optimize import DeltaOptimizeBuilder
from pydelta.api.python.table import DeltaTable
from pydelta.api.routing.wishes import watch_builders

watch_builders()

__all__ = ["DeltaMergeBuilder", "DeltaOptimizeBuilder", "DeltaTable", "DeltaTableBuilder", "IdentityGenerator"]
