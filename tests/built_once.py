"""Tables that many tests begin with: Spark writes each once, a test gets a copy of its folder."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["built_once"]

_folder: list[Path] = []
_built: dict[tuple[object, ...], Path] = {}


def built_once(build: Callable[..., Any]) -> Callable[..., str]:
    """Decorate a function that writes a table: called again with the same arguments, it copies what it wrote before.

    Args:
        build: Takes a session, the path of a table that is not there yet, and what tells one table from another.

    Returns:
        A function of the same arguments that returns the path.
    """

    @functools.wraps(build)
    def copied(spark: Any, path: Any, *arguments: Any, **named: Any) -> str:
        zone = spark.conf.get("spark.sql.session.timeZone")
        key = (build.__module__, build.__qualname__, repr(arguments), repr(sorted(named.items())), zone)
        if key not in _built:
            if not _folder:
                _folder.append(Path(tempfile.mkdtemp(prefix="pydelta-tables-")))
                atexit.register(shutil.rmtree, _folder[0], ignore_errors=True)
            target = _folder[0] / f"t{len(_built)}"
            build(spark, str(target), *arguments, **named)
            _built[key] = target
        shutil.copytree(_built[key], path)  # with its times: a version is as old as it says
        return str(path)

    return copied
