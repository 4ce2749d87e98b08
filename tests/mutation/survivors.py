"""The kept list: mutants that no test can notice, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

KEPT = Path(__file__).with_name("survivors.txt")


def read_kept(path: Path = KEPT) -> dict[str, str]:
    """Name -> reason.

    Raises:
        ValueError: A line without a reason, or twice there.
    """
    found: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition(" || ")
        if not reason.strip() or name in found:
            raise ValueError(f"{path.name}: without a reason, or twice there: {line}")
        found[name] = reason.strip()
    return found


def compare(survivors: Iterable[str], kept: Iterable[str], modules: Iterable[str]) -> tuple[list[str], list[str]]:
    """Survivors that are not kept, and kept ones of these modules that did not survive."""
    found, asked = set(survivors), set(modules)
    listed = {name for name in kept if name.split(":")[0] in asked}
    return sorted(found - listed), sorted(listed - found)
