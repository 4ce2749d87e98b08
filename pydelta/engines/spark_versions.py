"""Refuse a missing Spark, or one that this engine does not support, before anything is imported or written."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pydelta.errors import DeltaEnvironmentError

__all__ = ["SPARKS", "installed_spark", "refuse_unsupported", "require_spark"]

SPARKS: Final = ((4, 1), (4, 2), (4, 3))
"""The minor versions with which this engine is tested. The extra ``spark`` installs one of them."""


def installed_spark() -> str | None:
    """Return the version of the PySpark that would be imported, without importing it; None if there is none."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    try:
        text = Path(found.origin).with_name("version.py").read_text()
    except OSError:  # It is in an archive, as on YARN.
        return str(import_module("pyspark").__version__)
    version = re.search(r"""__version__.*=\s*["']([^"']+)["']""", text)
    return None if version is None else version.group(1)


def require_spark() -> None:
    """Check that there is a PySpark which this engine supports.

    Raises:
        DeltaEnvironmentError: There is none, or it is another version.
    """
    if find_spec("pyspark") is None:
        raise DeltaEnvironmentError(
            "This needs PySpark, which is not installed.",
            hint="pip install 'pydelta-lakehouse[spark]', or put the PySpark of your cluster on PYTHONPATH "
            "($SPARK_HOME/python and the py4j in its lib). pydelta.open reads and changes tables without it.",
        )
    refuse_unsupported(installed_spark())


def refuse_unsupported(version: str | None) -> tuple[int, ...]:
    """Return major and minor number of a Spark version in ``SPARKS``, or an empty tuple for an unknown version.

    Args:
        version: The version as Spark reports it; None if unknown.

    Raises:
        DeltaEnvironmentError: The version is not supported. Gives the supported ones.
    """
    found = tuple(int(part) for part in re.findall(r"\d+", version or "")[:2])
    if version is None or found in SPARKS:
        return found
    first, last = (".".join(map(str, number)) for number in (SPARKS[0], SPARKS[-1]))
    raise DeltaEnvironmentError(
        f"This is Spark {version}, but pydelta runs on Spark {first} to {last}.",
        hint=f"Install PySpark {first} to {last}: pip install 'pyspark>={first},<{SPARKS[-1][0]}.{SPARKS[-1][1] + 1}'.",
    )
