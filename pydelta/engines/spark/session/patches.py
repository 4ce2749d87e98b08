"""Replace methods of PySpark's classes while at least one session is enabled, and restore them afterwards."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

__all__ = ["is_enabled", "is_marked", "mark", "mark_like", "patch", "restore_all", "unmark"]

_KEY_ATTRIBUTE: Final = "_pydelta_session_key"
_SETTING: Final = "spark.sql.pydelta.enabledSession"
_enabled: set[str] = set()
_originals: dict[tuple[Any, str], Any] = {}
_lock = threading.RLock()


def _key(spark: Any) -> str | None:
    """Return the id of the JVM session behind a Python object. Several objects may share a session."""
    key: str | None = getattr(spark, _KEY_ATTRIBUTE, None)
    if key is None:
        session = getattr(spark, "_jsparkSession", None)
        if session is None:
            return None
        key = str(session.sessionUUID())
        setattr(spark, _KEY_ATTRIBUTE, key)
    return key


def is_enabled(spark: Any) -> bool:
    """Return whether the session's calls are routed to this engine."""
    if not _enabled:
        return False
    key = _key(spark)
    return key is not None and (key in _enabled or spark.conf.get(_SETTING, None) in _enabled)


def mark(spark: Any) -> None:
    """Enable the session."""
    key = _key(spark)
    assert key is not None
    with _lock:
        _enabled.add(key)
    spark.conf.set(_SETTING, key)  # A stream's batches run in a clone of the session, which inherits its settings.


def mark_like(spark: Any, other: Any) -> None:
    """Enable the session as long as another one is enabled. Nothing is stored about it in this process."""
    spark.conf.set(_SETTING, _key(other))


def is_marked(spark: Any) -> bool:
    """Return whether the JVM session was enabled before, through any Python object."""
    return spark.conf.get(_SETTING, None) is not None


def unmark(spark: Any) -> bool:
    """Disable the session. Returns whether no enabled session is left."""
    with _lock:
        _enabled.discard(_key(spark) or "")
        spark.conf.unset(_SETTING)
        return not _enabled


def patch(owner: type | ModuleType, name: str, build: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a method or function, once.

    Args:
        owner: The class or module that defines it.
        name: Its name.
        build: Makes the replacement from the original method. It must call the original for sessions that are not
            enabled.
    """
    with _lock:
        if (owner, name) in _originals:
            return
        original = owner.__dict__[name]
        _originals[owner, name] = original
        setattr(owner, name, functools.wraps(original)(build(original)))


def restore_all() -> None:
    """Restore all originals."""
    with _lock:
        for (owner, name), original in _originals.items():
            setattr(owner, name, original)
        _originals.clear()
