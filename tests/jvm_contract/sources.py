"""Find in the project's code which names of JVM classes it has as text, and which interfaces it implements."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from jvm_contract.calls import ROOT

_SIMPLE = re.compile(r"[A-Z][A-Za-z0-9]{3,}")
_FULL = re.compile(r"(?:org\.apache|scala|com|io)\.[\w.]*\.[A-Z][\w$]*")
_IMPLEMENTS = "implements = ("


def _code() -> Iterator[tuple[str, str]]:
    for package in ("pydelta", "catalog_sync", "jobs"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT).with_suffix("")), path.read_text()


def class_names(modules: frozenset[str], simple_names: frozenset[str]) -> list[str]:
    """Return the texts that name a JVM class.

    Args:
        modules: The modules that call the JVM. A name without a package counts only in these.
        simple_names: The names that Spark's classes have.
    """
    found = set()
    for module, text in _code():
        for node in _outside_all(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                value = node.value
                simple = module in modules and _SIMPLE.fullmatch(value) and value in simple_names
                if simple or _FULL.fullmatch(value):
                    found.add(value)
    return sorted(found)


def _outside_all(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk a module without its ``__all__``, whose texts are names of Python's."""
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            yield from ast.walk(statement)


def implementations() -> dict[str, dict[str, frozenset[str]]]:
    """Return the interfaces that Python classes implement: interface -> class -> the names that the class has.

    A class with ``__getattr__`` hands the other methods on, so that it is left out.
    """
    found: dict[str, dict[str, frozenset[str]]] = {}
    for name, text in _code():
        if _IMPLEMENTS in text.replace("implements = (\n", _IMPLEMENTS):
            module = importlib.import_module(name.replace("/", "."))
            for label, item in inspect.getmembers(module, inspect.isclass):
                java: Any = getattr(item, "Java", None)
                if item.__module__ == module.__name__ and java is not None:
                    if hasattr(item, "__getattr__"):
                        continue
                    for interface in java.implements:
                        found.setdefault(interface, {})[f"{name}.{label}"] = frozenset(dir(item))
    return found
