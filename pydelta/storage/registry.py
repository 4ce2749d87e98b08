"""Open the store that serves a location, by URI scheme. Users can add schemes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeAlias

from pydelta.errors import InvalidArgumentError
from pydelta.storage.interface import Store
from pydelta.storage.kinds import KINDS
from pydelta.storage.uris import normalize_uri, scheme_of

__all__ = ["StoreFactory", "open_store", "register_store"]

StoreFactory: TypeAlias = Callable[[str, Mapping[str, str]], Store]
"""Takes a normalized URI and Hadoop-style options, and returns the store of that root."""

_BUILT_IN: Mapping[str, str] = {scheme: kind.factory for kind in KINDS if kind.factory for scheme in kind.schemes}
_REGISTERED: dict[str, StoreFactory] = {}
_LOCK = threading.Lock()
_SETTING = "spark.pydelta.logStore."


def register_store(scheme: str, factory: StoreFactory) -> None:
    """Serve a URI scheme with ``factory`` in this process. Replaces an earlier factory of the scheme.

    Raises:
        InvalidArgumentError: The scheme is empty or not in lower case.
    """
    if not scheme or scheme != scheme.lower():
        raise InvalidArgumentError(f"{scheme!r} is not a URI scheme.", hint="Give it in lower case, such as 'oss'.")
    with _LOCK:
        _REGISTERED[scheme] = factory


def open_store(uri: str, options: Mapping[str, str] | None = None) -> Store:
    """Open the store for a location.

    The factory is looked up in this order: the option ``spark.pydelta.logStore.<scheme>`` (``module:factory``),
    ``register_store``, the entry points ``pydelta.log_stores``, and the built-in stores.

    Args:
        uri: A URI or a local path.
        options: ``fs.s3a.*`` and similar settings, with or without the prefix ``spark.hadoop.``.

    Raises:
        InvalidArgumentError: No store serves the scheme, or the setting does not name a valid factory.
    """
    normalized = normalize_uri(uri)
    options = dict(options or {})
    return _factory(scheme_of(normalized), options)(normalized, options)


def _factory(scheme: str, options: Mapping[str, str]) -> StoreFactory:
    if named := options.get(_SETTING + scheme):
        return _load(named, source=_SETTING + scheme)
    with _LOCK:
        if scheme in _REGISTERED:
            return _REGISTERED[scheme]
    if scheme in (installed := _installed()):
        return _load(installed[scheme], source=f"the entry point {scheme!r}")
    if scheme in _BUILT_IN:
        return _load(_BUILT_IN[scheme], source="built in")
    known = ", ".join(sorted({*_BUILT_IN, *_REGISTERED, *_installed()}))
    raise InvalidArgumentError(
        f"There is no store for the scheme {scheme!r}.",
        hint=f"The known schemes are {known}. To add one, set {_SETTING}{scheme} to module:factory.",
    )


@lru_cache(maxsize=1)
def _installed() -> Mapping[str, str]:
    """Map the scheme to the factory for every installed package that provides a log store."""
    return {entry.name: entry.value for entry in entry_points(group="pydelta.log_stores")}


def _load(target: str, *, source: str) -> StoreFactory:
    module, _, name = target.partition(":")
    try:
        factory: StoreFactory = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{source} names the store factory {target!r}, which cannot be loaded: {error}.",
            hint="Write it as package.module:function.",
        ) from error
    return factory


def _local(uri: str, options: Mapping[str, str]) -> Store:
    from pydelta.storage.local import LocalStore

    return LocalStore(uri)


def _memory(uri: str, options: Mapping[str, str]) -> Store:
    from pydelta.storage.memory import MemoryStore

    return MemoryStore(uri)
