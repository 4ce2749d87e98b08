"""Every deletion vector that other engines wrote decodes to the rows that its descriptor counts; no Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pydelta.protocol.actions import DeletionVectorDescriptor
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.roaring import decode_bitmap, encode_bitmap
from pydelta.protocol.vectors import deleted_rows, stored_range, vector_path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("PYDELTA_CONFORMANCE", ROOT.parent / "shared" / "conformance"))


NOT_HERE = {"golden__spark__table-with-dv-gigantic"}
"""Tables that came without their files, by design."""


def _vectors() -> Iterator[tuple[Path, DeletionVectorDescriptor]]:
    for log in sorted((FOLDER / "tables").rglob("_delta_log")):
        seen = set()
        for commit in sorted(log.glob("*.json")):
            for line in commit.read_text(errors="replace").splitlines():
                if '"deletionVector"' not in line:
                    continue
                action = json.loads(line)
                found = (action.get("add") or action.get("remove") or {}).get("deletionVector")
                if found:
                    vector = DeletionVectorDescriptor(
                        storage_type=found["storageType"],
                        path_or_inline_dv=found["pathOrInlineDv"],
                        size_in_bytes=found["sizeInBytes"],
                        cardinality=found["cardinality"],
                        offset=found.get("offset"),
                    )
                    if vector.unique_id not in seen:
                        seen.add(vector.unique_id)
                        yield log.parent, vector


def _stored(table: Path, vector: DeletionVectorDescriptor) -> bytes | None:
    name, where = vector_path(vector), stored_range(vector)
    if name is None or where is None:
        return None
    data = (table / decode_log_path(name).text).read_bytes()
    assert data[0] == 1, "the version of the file's format"
    return data[where[0] : where[0] + where[1]]


def test_vectors_of_other_engines_hold_the_rows_that_the_log_counts():
    tables, kinds, total = set(), set(), 0
    for table, vector in _vectors():
        if table.name in NOT_HERE:
            assert not list(table.glob("*.bin"))
            continue
        rows = deleted_rows(vector, _stored(table, vector))
        assert len(rows) == vector.cardinality
        assert bool((np.diff(rows.astype(np.int64)) > 0).all())
        assert decode_bitmap(encode_bitmap(rows)).tolist() == rows.tolist()
        tables.add(table.name)
        kinds.add(vector.storage_type)
        total += 1
    assert (len(tables), kinds, total) == (14, {"i", "u"}, 90)
