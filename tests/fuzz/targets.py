"""Name the targets; the modules behind a name are loaded when it is asked for."""

from __future__ import annotations

from typing import Final

from tests.fuzz.contract import Target

__all__ = ["TARGETS", "target_of"]

TARGETS: Final = {
    "bitmap": "log",
    "data": "log",
    "checkpoint": "log",
    "commit": "log",
    "hint": "log",
    "path": "log",
    "segment": "log",
    "table": "log",
    "vector": "log",
    "condition": "text",
    "inventory": "text",
    "manifest": "text",
    "partition": "text",
    "properties": "text",
    "schema": "text",
    "sql": "text",
    "state": "text",
    "statistics": "text",
}


def target_of(name: str) -> Target:
    """Find a target by its name; those with a planted fault too."""
    if name.startswith("planted-"):
        from tests.fuzz.planted import PLANTED

        return PLANTED[name]
    if TARGETS[name] == "log":
        from tests.fuzz.targets_log import LOG_TARGETS

        return {target.name: target for target in LOG_TARGETS}[name]
    from tests.fuzz.targets_text import TEXT_TARGETS

    return {target.name: target for target in TEXT_TARGETS}[name]
