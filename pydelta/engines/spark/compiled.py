"""Compile the engine's few lines of Java in the JVM, once per process, by the compiler that Spark uses for queries.

Java is used for what Python cannot be: a rule of Spark's planner, an expression, a listener of py4j. It is also used
for what would take Python many calls through py4j: walks over plans, what Spark asks of an index, reading many values.
What is decided about tables is decided in Python.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from pydelta.engines.spark.java_names import JavaNames

__all__ = ["compile_ahead", "compile_all", "new_instance", "source_of"]

_ATTRIBUTE: Final = "_pydelta_compiled"
_GROUPS: Final = (
    ("PydeltaWalk", "PydeltaFileIndex", "PydeltaCalls", "PydeltaNewestVersions"),
    ("RowNumbers", "PydeltaRowNumber"),
)
"""Classes that are compiled when one of them is first used. Each may use those before it in its group."""
_LOCK: Final = threading.Lock()


def new_instance(gateway: Any, name: str, *arguments: Any) -> Any:
    """Create an object of a class of the folder ``java``, which has one public constructor.

    Args:
        gateway: PySpark's gateway.
        name: Name of the class.
        arguments: Those of its constructor.
    """
    made = _made(gateway, name)
    given = JavaNames.of(gateway).java.util.ArrayList()
    for argument in arguments:
        given.add(argument)
    return made[name].newInstance(given.toArray())


def compile_ahead(spark: Any) -> None:
    """Compile the classes that every session needs in another thread. The first use reports an error.

    Args:
        spark: A session. Nothing is done for one that has no gateway, such as a remote one.
    """
    gateway = getattr(getattr(spark, "sparkContext", None), "_gateway", None) if hasattr(spark, "_jvm") else None
    if gateway is None or _ATTRIBUTE in vars(gateway):
        return

    def work() -> None:
        with suppress(Exception):
            _made(gateway, _GROUPS[0][0])

    threading.Thread(target=work, name="pydelta-compile", daemon=True).start()


def _made(gateway: Any, name: str) -> dict[str, Any]:
    """Return constructors by name, those of a class's group among them."""
    with _LOCK:
        # vars() is used because a gateway treats any missing attribute as a JVM method.
        made: dict[str, Any] = vars(gateway).setdefault(_ATTRIBUTE, {})
        if name not in made:
            group = next(classes for classes in _GROUPS if name in classes)
            made.update(_compile(gateway, group, _sources()))
    return made


def source_of(name: str) -> str:
    """Return the source of a class of the folder ``java``."""
    return _sources().joinpath(f"{name}.java").read_text(encoding="utf-8")


def compile_all(gateway: Any, sources: Traversable | None = None) -> dict[str, Any]:
    """Compile the classes, and return their constructors by name.

    Args:
        gateway: A gateway to a JVM with Spark's jars.
        sources: The folder of the sources, by default that of the package.
    """
    made: dict[str, Any] = {}
    for group in _GROUPS:
        made.update(_compile(gateway, group, sources or _sources()))
    return made


def _sources() -> Traversable:
    return resources.files("pydelta.engines.spark").joinpath("java")


def _compile(gateway: Any, classes: Sequence[str], folder: Traversable) -> dict[str, Any]:
    view = JavaNames.of(gateway)
    made: dict[str, Any] = {}
    loader = view.java.lang.Thread.currentThread().getContextClassLoader()
    for name in classes:
        compiler = view.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(folder.joinpath(f"{name}.java").read_text(encoding="utf-8"))
        loader = compiler.getClassLoader()
        made[name] = loader.loadClass(name).getConstructors()[0]
    return made
