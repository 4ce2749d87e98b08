"""Compile the engine's few lines of Java in the JVM, once per process, by the compiler that Spark uses for queries.

Java is used for what Python cannot be: a rule of Spark's planner, a listener of py4j, and calls that read many values
at once. What is decided about tables is decided in Python.
"""

from __future__ import annotations

import threading
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from pydelta.engines.spark.java_names import JavaNames

__all__ = ["compile_all", "new_instance"]

_ATTRIBUTE: Final = "_pydelta_compiled"
_CLASSES: Final = ("PydeltaCalls", "PydeltaNewestVersions", "PydeltaRowNumber")
"""Each may use those before it."""
_LOCK: Final = threading.Lock()


def new_instance(gateway: Any, name: str, *arguments: Any) -> Any:
    """Create an object of a class of the folder ``java``, which has one public constructor.

    Args:
        gateway: PySpark's gateway.
        name: Name of the class.
        arguments: Those of its constructor.
    """
    with _LOCK:
        # vars() is used because a gateway treats any missing attribute as a JVM method.
        made: dict[str, Any] | None = vars(gateway).get(_ATTRIBUTE)
        if made is None:
            made = compile_all(gateway)
            setattr(gateway, _ATTRIBUTE, made)
    given = JavaNames.of(gateway).java.util.ArrayList()
    for argument in arguments:
        given.add(argument)
    return made[name].newInstance(given.toArray())


def compile_all(gateway: Any, sources: Traversable | None = None) -> dict[str, Any]:
    """Compile the classes, and return their constructors by name.

    Args:
        gateway: A gateway to a JVM with Spark's jars.
        sources: The folder of the sources, by default that of the package.
    """
    folder = sources or resources.files("pydelta.engines.spark").joinpath("java")
    view = JavaNames.of(gateway)
    made: dict[str, Any] = {}
    loader = view.java.lang.Thread.currentThread().getContextClassLoader()
    for name in _CLASSES:
        compiler = view.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(folder.joinpath(f"{name}.java").read_text(encoding="utf-8"))
        loader = compiler.getClassLoader()
        made[name] = loader.loadClass(name).getConstructors()[0]
    return made
