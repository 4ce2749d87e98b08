"""Replace small files that other processes read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["replace_json"]


def replace_json(path: Path, value: Any) -> None:
    """Write a value as JSON in place of a file, so that a reader sees the old file or the new one, and never a part.

    Raises:
        OSError: The file cannot be written.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(value))
    fresh.replace(path)
