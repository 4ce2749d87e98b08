"""Every table that other engines wrote, read through ``spark.read.format("delta").load`` and compared row for row.

``passing_rows.txt`` lists the cases that pass; it may only grow. A listed case that fails is a failure, and so is a
case that passes without being listed.
"""

from __future__ import annotations

import importlib.util
import json
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from pydelta.errors import DeltaError, UnsupportedFeatureError

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("PYDELTA_CONFORMANCE", ROOT.parent / "shared" / "conformance"))
KEPT = Path(__file__).with_name("passing_rows.txt")


@cache
def _index() -> list[dict[str, Any]]:
    path = FOLDER / "index.json"
    return json.loads(path.read_text()) if path.exists() else []


@cache
def _canon() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_canon", FOLDER / "canon.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _kept() -> set[str]:
    return {line.strip() for line in KEPT.read_text().splitlines() if line.strip() and not line.startswith("#")}


def _of(expect: str) -> list[dict[str, Any]]:
    return [case for case in _index() if case["expect"] == expect]


def _rows_of(spark: Any, case: dict[str, Any]) -> pa.Table:
    frame = spark.read.format("delta").load(str(FOLDER / "tables" / case["id"]))
    return _canon().fix_types(_as_arrow(frame))


def _as_arrow(frame: Any) -> pa.Table:
    return frame.select(*with_json(frame)).toArrow()


def with_json(frame: Any) -> list[Any]:
    """The columns; one with a variant anywhere inside as JSON text."""
    from pyspark.sql import functions as F

    return [
        F.to_json(frame[f"`{field.name}`"]).alias(field.name)
        if "variant" in field.dataType.simpleString()
        else frame[f"`{field.name}`"]
        for field in frame.schema.fields
    ]


def test_the_corpus_is_there_and_whole():
    assert _index(), f"no conformance tables in {FOLDER}: set PYDELTA_CONFORMANCE to the folder that holds index.json"
    counts = {expect: len(_of(expect)) for expect in ("rows", "error", "snapshot-only", "disputed")}
    assert counts == {"rows": 226, "error": 22, "snapshot-only": 18, "disputed": 2}


def test_the_kept_set_names_cases_that_exist():
    assert _kept() <= {case["id"] for case in _of("rows") + _of("error")}


@pytest.mark.parametrize("case", _of("rows"), ids=lambda case: case["id"])
def test_rows_are_those_another_engine_reads(spark, case):
    kept = case["id"] in _kept()
    try:
        found = _rows_of(spark, case)
    except UnsupportedFeatureError as error:
        assert not kept, f"{case['id']} passed before and is refused now: {error}"
        assert error.features, "a refusal names the feature"
        return
    except Exception:
        if kept:
            raise
        pytest.xfail(f"{case['id']} is not read yet")
    problem = _difference(case, found)
    if problem is not None:
        assert not kept, f"{case['id']} passed before: {problem}"
        pytest.fail(f"{case['id']} is read with wrong rows: {problem}")
    assert kept, f"{case['id']} passes now: add it to {KEPT.name}"


def _difference(case: dict[str, Any], found: pa.Table) -> str | None:
    if found.num_rows != case["rows"]:
        return f"{found.num_rows} rows, expected {case['rows']}"
    if case.get("rows_hash") is None:
        return None
    if _canon().canon(found) == case["rows_hash"]:
        return None
    return f"the rows differ; columns {found.schema.names}"


@pytest.mark.parametrize("case", _of("error"), ids=lambda case: case["id"])
def test_a_table_that_must_be_refused_is_refused_by_name(spark, case):
    kept = case["id"] in _kept()
    try:
        _rows_of(spark, case)
    except DeltaError as error:
        assert error.hint, f"no word on what to do next: {error}"
        assert kept, f"{case['id']} is refused now ({error}): add it to {KEPT.name}"
        return
    except Exception as error:  # noqa: BLE001  any error that is not ours is the finding
        assert not kept, f"{case['id']} was refused with an error of ours before: {error}"
        pytest.xfail(f"{case['id']} fails with {type(error).__name__}, not with an error of ours")
    assert not kept, f"{case['id']} was refused before"
    pytest.xfail(f"{case['id']} is read without an error")
