"""Start an enabled session without what the JVM writes to standard error meanwhile."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from pydelta.api.routing.start import session
from pydelta.errors import DeltaEnvironmentError, first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["quiet_session"]


def quiet_session(
    app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None, verbose: bool = False
) -> SparkSession:
    """Open a ``session`` for programs that people look at: what goes wrong at the start is told in one line.

    Args:
        app_name: Name of the application.
        master: See ``session``.
        conf: Spark settings.
        verbose: Let Spark say what it says at the start.

    Raises:
        DeltaEnvironmentError: Spark does not start.
    """
    with _quiet(verbose) as said:
        try:
            return session(app_name, master=master, conf=conf)
        except (PySparkException, OSError) as error:
            raise DeltaEnvironmentError(
                f"Spark did not start: {_first(said) or first_line(error)}",
                hint="Check that Java 17 or newer is installed (JAVA_HOME), and the settings. "
                "pydelta sql --verbose shows all that is said.",
            ) from error


@contextmanager
def _quiet(verbose: bool) -> Iterator[IO[Any] | None]:
    """Let the JVM, which inherits it, write its errors to a file: what fails is raised, and told once."""
    if verbose:
        yield None
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _first(said: IO[Any] | None) -> str:
    """The first line with an error that the JVM wrote; nothing where it only warned."""
    if said is None:
        return ""
    said.seek(0)
    lines = [line.strip() for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "exception" in line.lower()]
    other = [line for line in lines if not line.startswith("WARNING")]
    return (errors or other or [""])[0][:300]
