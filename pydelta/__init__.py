"""Read and write Delta Lake tables in Python with PySpark. Importing this package starts and patches nothing.

::

    open(uri) ----------> scan, append, delete, restore …: no JVM
    LocalTable.create --> a new table: no JVM
    enable(spark) ------> this engine handles format("delta"), spark.table, writeTo …
    tables.DeltaTable --> delete, history, detail, restore, builders
    log.DeltaLog -------> snapshots, history, checkpoints: no JVM
    cli ----------------> pydelta history|detail|files|checkpoint|cleanup
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydelta.api.python.local import LocalTable
    from pydelta.api.python.local import open_table as open  # noqa: A004 - named like the built-in that opens files
    from pydelta.api.routing.enable import disable, enable
    from pydelta.api.routing.start import configure_spark_with_delta_pip, session
    from pydelta.tables import DeltaTable

__all__ = ["DeltaTable", "LocalTable", "configure_spark_with_delta_pip", "disable", "enable", "open", "session"]

__version__ = "1.0.0rc1"

_HOMES = {
    "DeltaTable": ("pydelta.tables", "DeltaTable"),
    "LocalTable": ("pydelta.api.python.local", "LocalTable"),
    "configure_spark_with_delta_pip": ("pydelta.api.routing.start", "configure_spark_with_delta_pip"),
    "disable": ("pydelta.api.routing.enable", "disable"),
    "enable": ("pydelta.api.routing.enable", "enable"),
    "open": ("pydelta.api.python.local", "open_table"),
    "session": ("pydelta.api.routing.start", "session"),
}


def __getattr__(name: str) -> Any:
    """Import pyspark only when a name that needs it is used."""
    if name in _HOMES:
        home, found = _HOMES[name]
        return getattr(import_module(home), found)
    raise AttributeError(f"module 'pydelta' has no attribute {name!r}")
