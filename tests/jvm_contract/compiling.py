"""Compile the engine's Java with the jars of a version of Spark, by the compiler in them, as a session does."""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError

from jvm_contract.classes import jvm_with
from pydelta.engines.spark.compiled import compile_all


def compile_errors(jars: Path, sources: Path | None = None) -> list[str]:
    """Return what does not compile, at most one line.

    Args:
        jars: The folder with the jars.
        sources: The folder with the sources, by default the engine's.
    """
    with jvm_with(jars) as gateway:
        try:
            compile_all(gateway, sources)
        except Py4JJavaError as error:
            return [f"  {str(error.java_exception.getMessage()).splitlines()[0]}\n    in the engine's Java"]
    return []
