"""Start an enabled session and suppress what the JVM prints to standard error during the start."""

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
    """Open a ``session`` for interactive programs, reporting a failed start in one line.

    Args:
        app_name: Name of the application.
        master: See ``session``.
        conf: Spark settings.
        verbose: Show Spark's messages during the start.

    Raises:
        DeltaEnvironmentError: Spark does not start.
    """
    with _quiet(verbose) as output:
        try:
            return session(app_name, master=master, conf=conf)
        except (PySparkException, OSError) as error:
            raise DeltaEnvironmentError(
                f"Spark did not start: {_first(output) or first_line(error)}",
                hint="Check that Java 17 or newer is installed (JAVA_HOME), and the settings. "
                "pydelta sql --verbose shows all messages.",
            ) from error


@contextmanager
def _quiet(verbose: bool) -> Iterator[IO[Any] | None]:
    """Redirect standard error to a file that the JVM inherits, so that a failure is reported only once."""
    if verbose:
        yield None
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        try:
            yield output
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _first(output: IO[Any] | None) -> str:
    """Return the first line with an error that the JVM wrote; nothing if it only warned."""
    if output is None:
        return ""
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() or "exception" in line.lower()]
    other = [line for line in lines if not line.startswith("WARNING")]
    return (errors or other or [""])[0][:300]
