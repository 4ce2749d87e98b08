"""Read and write Delta Lake tables in Python over PySpark; importing this starts nothing and patches nothing.

::

    enable(spark) ------> format("delta"), spark.table, writeTo … go to this engine
    tables.DeltaTable --> delete, history, detail, restore, builders
    log.DeltaLog -------> snapshots, history, checkpoints: no JVM
    cli ----------------> pydelta history|detail|files|checkpoint|cleanup
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydelta.spark.routing.enable import disable, enable
    from pydelta.spark.session.start import configure_spark_with_delta_pip, session
    from pydelta.tables import DeltaTable

__all__ = ["DeltaTable", "configure_spark_with_delta_pip", "disable", "enable", "session"]

__version__ = "0.1.0"

_HOMES = {
    "DeltaTable": "pydelta.tables",
    "configure_spark_with_delta_pip": "pydelta.spark.session.start",
    "disable": "pydelta.spark.routing.enable",
    "enable": "pydelta.spark.routing.enable",
    "session": "pydelta.spark.session.start",
}


def __getattr__(name: str) -> Any:
    """Import pyspark only when a name that needs it is used."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pydelta' has no attribute {name!r}")
