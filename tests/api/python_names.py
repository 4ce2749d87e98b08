"""Modules, classes, methods, functions and their signatures, as far as they are documented."""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from pydelta.errors import DeltaError
from pydelta.settings.row import rows_of
from tests.api.entries import Entry

ROOT = Path(__file__).resolve().parents[2]
OURS = ("pydelta", "catalog_sync")
MODULES = (
    "catalog_sync",
    "pydelta",
    "pydelta.errors",
    "pydelta.exceptions",
    "pydelta.log",
    "pydelta.settings",
    "pydelta.storage",
    "pydelta.tables",
    "pydelta.tools.maintenance",
    "pydelta.tools.maintenance.watch",
)
"""The modules whose ``__all__`` is public. Each module that a page imports from is one of them: a test compares."""


def imported_by_pages() -> set[str]:
    """The modules of ours from which code in pages imports."""
    found = set()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        if path.name != "CHANGELOG.md" and "adr" not in path.parts:
            text = path.read_text()
            for fence in re.findall(r"^ *```(?:python|py)\b.*?^ *```", text, re.MULTILINE | re.DOTALL):
                found |= set(re.findall(r"^\s*from ((?:pydelta|catalog_sync)[\w.]*) import ", fence, re.MULTILINE))
                found |= set(re.findall(r"^\s*import ((?:pydelta|catalog_sync)[\w.]*)", fence, re.MULTILINE))
    return found


def python_entries() -> Iterator[Entry]:
    """Each documented module with what it exports, and the results of its methods."""
    seen: dict[type, str] = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        yield Entry("module", module_name)
        for name in module.__all__:
            yield from _exported(f"{module_name}.{name}", getattr(module, name), seen)


def _exported(name: str, value: Any, seen: dict[type, str]) -> Iterator[Entry]:
    if inspect.isclass(value):
        if value in seen:  # two modules export it
            yield Entry("class", name, f"is {seen[value]}")
            return
        seen[value] = name
        yield from _error(name, value) if issubclass(value, DeltaError) else _class(name, value)
        for result in _results(value):
            if result not in seen:
                seen[result] = result.__name__
                yield from _result(result)
    elif callable(value):
        yield Entry("function", name, signature(value))
    else:
        yield Entry("constant", name)


def _class(name: str, cls: type) -> Iterator[Entry]:
    yield Entry("class", name, _constructor(cls))
    if issubclass(cls, enum.Enum):
        for member in cls:
            yield Entry("member", f"{name}.{member.name}", repr(member.value))
    yield from _attributes(name, cls, list(_public(cls)))
    if not _is_made_by_us(cls):
        for attribute in sorted(_fields(cls)):
            yield Entry("attribute", f"{name}.{attribute}")


def _attributes(name: str, cls: type, attributes: Sequence[str]) -> Iterator[Entry]:
    for attribute in attributes:
        found = inspect.getattr_static(cls, attribute)
        if isinstance(found, property | functools.cached_property) or inspect.isdatadescriptor(found):
            yield Entry("attribute", f"{name}.{attribute}")
        elif isinstance(found, classmethod | staticmethod) or inspect.isfunction(found):
            yield Entry("method", f"{name}.{attribute}", signature(getattr(cls, attribute), bound=found))
        elif not isinstance(found, enum.Enum):
            yield Entry("attribute", f"{name}.{attribute}")


def _error(name: str, cls: type[DeltaError]) -> Iterator[Entry]:
    """A class that users catch: its condition, what else catches it, what it has beside its base."""
    caught = [f"is {base.__name__}" for base in cls.__mro__[1:-1] if base not in (Exception, BaseException)]
    retryable = ["retryable"] if cls.retryable else []
    yield Entry("error", name, ", ".join([cls.code, *retryable, *caught]))
    yield from _attributes(
        name, cls, [item for item in _public(cls) if cls is DeltaError or not hasattr(DeltaError, item)]
    )


def _result(cls: type) -> Iterator[Entry]:
    """What a method returns: users read its fields, wherever its class is."""
    names = {name for name, home in _public(cls).items() if isinstance(inspect.getattr_static(home, name), property)}
    for name in sorted(names | _fields(cls)):
        yield Entry("result", f"{cls.__name__}.{name}")


def _public(cls: type) -> dict[str, type]:
    """Public names of a class, those of its bases that are ours too -> the class that defines it."""
    found: dict[str, type] = {}
    for home in reversed(cls.__mro__):
        if home.__module__.partition(".")[0] in OURS:
            found |= {name: home for name in vars(home) if not name.startswith("_")}
    return {name: home for name, home in sorted(found.items()) if name not in _fields(cls)}


def _fields(cls: type) -> set[str]:
    """The fields of a dataclass or of a message."""
    named = getattr(cls, "__dataclass_fields__", None) or getattr(cls, "__struct_fields__", ())
    return {name for name in named if not name.startswith("_")}


def _is_made_by_us(cls: type) -> bool:
    """Whether users get it from a function, so that its constructor and its fields are not for them."""
    return cls.__module__.startswith("pydelta.api.python.") and cls.__name__ != "IdentityGenerator"


def _constructor(cls: type) -> str:
    """The arguments of a class that users make by calling it. Settings have an entry each."""
    if _is_made_by_us(cls) or (_fields(cls) and is_dataclass(cls) and rows_of(cls)):
        return ""
    if issubclass(cls, enum.Enum) or getattr(cls, "_is_protocol", False):
        return ""
    made = next((home for home in cls.__mro__ if "__init__" in vars(home)), object)
    return signature(made.__init__, bound=None) if made.__module__.partition(".")[0] in OURS else ""


def _results(cls: type) -> Iterator[type]:
    """The classes of ours, with fields, that the methods of a class return."""
    for attribute, home in _public(cls).items():
        found = inspect.getattr_static(home, attribute)
        function = getattr(found, "__func__", found)
        if inspect.isfunction(function):
            named = str(function.__annotations__.get("return", ""))
            value = getattr(sys.modules[function.__module__], named, None) if named.isidentifier() else None
            if inspect.isclass(value) and value.__module__.partition(".")[0] in OURS and _fields(value):
                yield value


def signature(function: Any, *, bound: Any = "") -> str:
    """Names, kinds and defaults of arguments; types may become wider without a reader's notice.

    ``bound`` is the static attribute of a class: an ordinary function of it has ``self`` before the arguments.
    """
    parameters = list(inspect.signature(function).parameters.values())
    if bound is None or inspect.isfunction(bound):
        parameters = parameters[1:]
    plain = [
        item.replace(annotation=item.empty, default=item.empty if item.default is item.empty else _Shown(item.default))
        for item in parameters
        if not item.name.startswith("_")
    ]
    return str(inspect.Signature(plain))


class _Shown:
    """A default as it is kept: a literal, or ``...``."""

    def __init__(self, value: Any) -> None:
        self.text = default_text(value)

    def __repr__(self) -> str:
        return self.text


def default_text(value: Any) -> str:
    """A literal that says what a default is, or ``...`` for one that no literal says."""
    if isinstance(value, enum.Enum):
        return repr(value.name)
    if isinstance(value, tuple | list) and all(default_text(item) != "..." for item in value):
        return repr(type(value)(value))
    return repr(value) if value is None or isinstance(value, bool | int | float | str | bytes) else "..."
