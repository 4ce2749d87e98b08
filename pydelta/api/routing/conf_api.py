"""Route ``spark.conf.get``: an unset setting of the reference engine returns that engine's default.

A setting that has no default there returns None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark._globals import _NoValue
from pyspark.sql.conf import RuntimeConfig

from pydelta.engines.spark.session.patches import patch
from pydelta.settings.reference import PREFIX, reference_settings

__all__ = ["install"]


def install() -> None:
    """Install the route. ``patches.restore_all`` removes it."""
    patch(RuntimeConfig, "get", _get)


def _get(original: Callable[..., Any]) -> Callable[..., Any]:
    def get(self: RuntimeConfig, key: str, default: Any = _NoValue) -> Any:
        if default is not _NoValue or not isinstance(key, str) or not key.startswith(PREFIX):
            return original(self, key, default)
        found = original(self, key, None)
        if found is not None:
            return found
        known = reference_settings().get(key)
        return original(self, key) if known is None else known.default  # Spark raises its error for an unknown key.

    return get
