"""The parts of docs/upgrading.md that come from elsewhere: deprecated names, and the changelog's breaking changes."""

from __future__ import annotations

import re
from pathlib import Path

from pydelta.deprecation import deprecated_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "upgrading.md"
CHANGELOG = ROOT / "CHANGELOG.md"


def unreleased(changelog: str) -> str:
    """The section of what was not released yet."""
    return changelog.partition("\n## Unreleased\n")[2].partition("\n## ")[0]


def breaking(changelog: str) -> str:
    """All lines under ``### Breaking`` of every version, with links as the page needs them."""
    parts = re.findall(r"^### Breaking\n(.*?)(?=^##|\Z)", changelog, re.MULTILINE | re.DOTALL)
    return "\n".join(part.strip() for part in parts).replace("](docs/", "](")


def upgrading_page(page: str, changelog: str) -> str:
    """Replace the generated parts of the page: the table, and the list at its end."""
    table = deprecated_table()
    page = re.sub(r"^\| deprecated \|.*?(?=\n\n)", lambda _: table, page, flags=re.MULTILINE | re.DOTALL)
    before, start, _ = page.partition("From [Changes](../CHANGELOG.md):\n\n")
    return f"{before}{start}{breaking(changelog)}\n"
