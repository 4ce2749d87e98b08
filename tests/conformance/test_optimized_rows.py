"""Tables that other engines wrote, after OPTIMIZE: fewer files, and the rows that those engines read.

What Arrow reads of a file has to be what Spark reads of it, whoever wrote it. One table of each kind is tried: by the
types of its columns, with partitions or without, by column mapping, and by whether vectors delete rows.
"""

from __future__ import annotations

import shutil
from functools import cache
from typing import Any

import pytest
from test_rows import FOLDER, _as_arrow, _canon, _difference, _kept, _of

from pydelta.errors import DeltaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.protocol.features import ensure_writable
from pydelta.protocol.schema import leaf_paths
from pydelta.tables import DeltaTable

pytestmark = pytest.mark.spark


@cache
def _cases() -> list[dict[str, Any]]:
    found: dict[object, dict[str, Any]] = {}
    kept = _kept()
    for case in _of("rows"):
        if case["id"] not in kept:
            continue
        try:
            snapshot = DeltaLog.for_table(str(FOLDER / "tables" / case["id"])).update()
            ensure_writable(snapshot.protocol)
        except DeltaError:
            continue
        keys = [column for column in snapshot.files.core.columns if column.startswith("pv:")]
        fullest = snapshot.files.core.group_by(keys).len()["len"].max() if keys else snapshot.num_files
        if (fullest or 0) < 2 or snapshot.num_files > 200:
            continue  # nothing to merge
        types = frozenset(str(data_type) for _, data_type in leaf_paths(snapshot.schema))
        kind = (types, bool(keys), snapshot.column_mapping_mode, snapshot.files.has_live_vectors())
        found.setdefault(kind, case)
    return list(found.values())


def test_there_are_kinds_of_tables_to_try():
    assert len(_cases()) >= 25


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["id"])
def test_rows_are_the_same_after_optimize(spark, case, tmp_path):
    path = tmp_path / "t"
    shutil.copytree(FOLDER / "tables" / case["id"], path)
    before = DeltaLog.for_table(str(path)).update()
    try:
        metrics = DeltaTable.forPath(spark, str(path)).optimize().executeCompaction().first()["metrics"]
    except UnsupportedFeatureError as error:
        pytest.fail(f"a table that may be written to was refused: {error}")
    after = DeltaLog.for_table(str(path)).update()
    assert metrics["numFilesRemoved"] >= 2
    assert after.num_files == before.num_files - metrics["numFilesRemoved"] + metrics["numFilesAdded"]
    found = _canon().fix_types(_as_arrow(spark.read.format("delta").load(str(path))))
    assert _difference(case, found) is None
