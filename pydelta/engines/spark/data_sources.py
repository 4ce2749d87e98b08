"""Register a Python data source with a session, and unregister it, for which Spark has no call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.udf import _wrap_function

if TYPE_CHECKING:
    from pydelta.engines.spark.jvm import Jvm

__all__ = ["forget_data_source", "register_data_source"]

_SOURCES: Final = "runtimeDataSourceBuilders"


def register_data_source(jvm: Jvm, source: type[Any]) -> None:
    """Register a Python data source unless one with that name was registered.

    Spark's own call first starts a Python process that looks for installed sources, which takes a second.

    Args:
        jvm: The session.
        source: A subclass of ``pyspark.sql.datasource.DataSource``.
    """
    python = jvm.view.org.apache.spark.sql.execution.datasources.v2.python
    for known in _registered(jvm):
        if not known.containsKey(source.name()):
            wrapped = _wrap_function(jvm.spark.sparkContext, source)
            known.put(source.name(), python.UserDefinedPythonDataSource(wrapped))


def forget_data_source(jvm: Jvm, name: str) -> None:
    """Unregister a Python data source."""
    for known in _registered(jvm):
        known.remove(name)


def _registered(jvm: Jvm) -> list[Any]:
    """Return the map, by name, of the sources that were registered with a session."""
    manager = jvm.state.dataSourceManager()
    fields = [item for item in manager.getClass().getDeclaredFields() if str(item.getName()).endswith(_SOURCES)]
    for field in fields:
        field.setAccessible(True)
    return [field.get(manager) for field in fields]
