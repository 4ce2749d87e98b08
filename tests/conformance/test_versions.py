"""Time travel over every version of every table of the corpus, against the rows that another engine read of it.

``passing_versions.txt`` lists the versions whose rows are those; it may only grow. Versions that the other engine could
not read are in ``versions_without_rows.txt`` with what becomes of them here.
"""

from __future__ import annotations

from functools import cache, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.conformance.test_rows import FOLDER, _canon, _difference, _index, as_text

pytestmark = pytest.mark.spark

KEPT = Path(__file__).with_name("passing_versions.txt")
"""A table a line: its name, a colon, versions."""

WITHOUT_ROWS = Path(__file__).with_name("versions_without_rows.txt")
"""The same, then a bar and what becomes of these versions here: ``read``, or the class of the error."""


@cache
def _kept() -> dict[str, set[int]]:
    return {name: versions for name, versions, _ in _lines(KEPT)}


@cache
def _without_rows() -> dict[tuple[str, int], str]:
    return {(name, version): what for name, versions, what in _lines(WITHOUT_ROWS) for version in versions}


def _lines(path: Path) -> list[tuple[str, set[int], str]]:
    found = []
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(": ")
            versions, _, what = rest.partition(" | ")
            found.append((name, {int(text) for text in versions.split()}, what))
    return found
