"""The logs of all tables that other engines wrote: version, protocol, metadata, sizes and file lists; no Spark.

``passing_snapshots.txt`` lists the cases that pass; it may only grow. An "error" case that is about the log passes on
one of our errors that names its cause; the others are for the tests that read rows.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog, Snapshot

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("PYDELTA_CONFORMANCE", ROOT.parent / "shared" / "conformance"))
KEPT = Path(__file__).with_name("passing_snapshots.txt")

LOG_ERRORS = {
    "delta-rs__data__table-with-domain-metadata": "commit file of version 108 is missing",
    "delta-rs__data_err_logs__table_c": "commit of version 12 is missing",
    "delta-rs__data_err_logs__table_d": "catalogOwned",
    "delta-rs__data_err_logs__table_h": "catalogOwned",
    "delta-rs__data_err_logs__table_i": "catalogOwned",
    "golden__golden-tables__data-reader-absolute-paths-escaped-chars": "no metaData action",
    "golden__golden-tables__deltalog-state-reconstruction-from-checkpoint-missing-metadata": "no metaData action",
    "golden__golden-tables__deltalog-state-reconstruction-from-checkpoint-missing-protocol": "no protocol action",
    "golden__golden-tables__deltalog-state-reconstruction-without-metadata": "no metaData action",
    "golden__golden-tables__deltalog-state-reconstruction-without-protocol": "no protocol",
    "golden__kernel-defaults__catalog-owned-preview": "catalogManaged",
    "kernel-rs__data__crc-malformed": "There is no Delta table",
    "kernel-rs__unity__catalog_managed_0": "catalogManaged",
    "trino__resources__statistics__extended_stats_with_data_size": "There is no Delta table",
    "trino__resources__statistics__extended_stats_without_data_size": "There is no Delta table",
    "trino__resources__statistics__negative_infinity": "no protocol",
    "trino__resources__statistics__negative_infinity_nan": "no protocol",
    "trino__resources__statistics__parquet_struct_statistics_null_count": "commit file of version 10 is missing",
    "trino__resources__statistics__positive_infinity": "no protocol",
    "trino__resources__statistics__zero_infinity": "no protocol",
    "trino__resources__statistics__zero_negative_infinity": "no protocol",
}

# The log is sound; what is wrong shows when the schema is planned (an unsupported change of type).
ERRORS_OF_THE_SCHEMA = {"trino__resources__deltalake__type_widening_unsupported"}

# Where the index and the log itself disagree, and why we side with the log.
DECIDED: dict[str, dict[str, Any]] = {
    # The compacted files hold several actions for one file, newest first: they are not reconciled, so we bypass them.
    # The commits leave two files, and the index's own rows are those two files' rows.
    "kernel-rs__data__compacted-log-files-table": {"version": 25, "numFiles": 2, "sizeInBytes": 1753},
    # Commits spread over several lines: two of three engines read them, and nothing is ambiguous about them.
    "duckdb__null_constraints_lists__delta_lake": {"version": 1, "numFiles": 1},
    # A colon in a relative path is no URI scheme where "=" comes before it: a file of the table, as two engines do.
    "kernel-rs__data__timestamp-partitioned-table": {"version": 0, "numFiles": 1},
}


@cache
def _index() -> list[dict[str, Any]]:
    path = FOLDER / "index.json"
    return json.loads(path.read_text()) if path.exists() else []


def _kept() -> set[str]:
    return {line.strip() for line in KEPT.read_text().splitlines() if line.strip() and not line.startswith("#")}


def _problem(case: dict[str, Any]) -> str | None:
    """What is wrong with our reading of a case; None when nothing is."""
    name = case["id"]
    try:
        snapshot = DeltaLog.for_table(str(FOLDER / "tables" / name)).snapshot()
        differences = _differences(snapshot, case)
    except DeltaError as error:
        if name not in LOG_ERRORS:
            return f"refused: {error}"
        return None if LOG_ERRORS[name] in str(error) else f"the error does not name the cause: {error}"
    finally:
        DeltaLog.clear_cache()
    if name in LOG_ERRORS:
        return "read without an error"
    return "; ".join(differences) or None


def _differences(snapshot: Snapshot, case: dict[str, Any]) -> list[str]:
    expected = DECIDED.get(case["id"], case.get("snapshot"))
    if not expected:
        return []
    core = snapshot.files.core
    adds = snapshot.files.adds(core)
    metadata = snapshot.metadata
    assert metadata is not None
    found: dict[str, Any] = {
        "version": snapshot.version,
        "numFiles": snapshot.num_files,
        "sizeInBytes": snapshot.size_bytes,
        "protocol": _protocol(snapshot),
        "metadata": {
            "id": metadata.id,
            "name": metadata.name,
            "partitionColumns": list(metadata.partition_columns),
            "configuration": dict(metadata.configuration),
            "schemaString": metadata.schema_string,
        },
        "files": sorted(_file(add.path, add.partition_values) for add in adds),
        "num_stats": snapshot.files.with_stats(core).height,
    }
    meant = dict(expected, num_stats=len(adds))
    if "files" in meant:
        meant["files"] = sorted(_file(file["path"], file["partitionValues"]) for file in meant["files"])
    if "metadata" in meant and meant["metadata"]["schemaString"] is None:
        meant["metadata"] = dict(meant["metadata"], schemaString='{"type":"struct","fields":[]}')
    if "protocol" in meant:
        meant["protocol"] = {
            name: sorted(value) if isinstance(value, list) else value for name, value in meant["protocol"].items()
        }
    return [
        f"{name}: {str(found[name])[:300]} instead of {str(meant[name])[:300]}"
        for name in found
        if name in meant and found[name] != meant[name]
    ]


def _protocol(snapshot: Snapshot) -> dict[str, Any]:
    protocol = snapshot.protocol
    assert protocol is not None
    versions: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version, "minWriterVersion": protocol.min_writer_version,
    }  # fmt: skip
    if protocol.reader_features is not None:
        versions["readerFeatures"] = sorted(protocol.reader_features)
    if protocol.writer_features is not None:
        versions["writerFeatures"] = sorted(protocol.writer_features)
    return versions


def _file(path: str, values: dict[str, str | None]) -> tuple[str, list[tuple[str, str]]]:
    return path, sorted((name, value or "") for name, value in values.items())


def test_all_cases_are_there():
    assert FOLDER.is_dir(), f"The tables are not at {FOLDER}; set PYDELTA_CONFORMANCE to where they are."
    assert len(_index()) == 268
    assert {case["id"] for case in _index() if case["expect"] == "error"} == set(LOG_ERRORS) | ERRORS_OF_THE_SCHEMA


def test_every_kept_case_passes_and_every_passing_case_is_kept():
    problems = {case["id"]: _problem(case) for case in _index()}
    passing = {name for name, problem in problems.items() if problem is None}
    failing = {name: problem for name, problem in problems.items() if problem is not None and name in _kept()}
    assert failing == {}
    assert passing - _kept() == set(), f"Add them to {KEPT.name}."
    assert _kept() <= set(problems), "A kept case is no longer in the index."


@pytest.mark.parametrize("name", sorted(LOG_ERRORS))
def test_an_error_says_what_to_do_next(name: str):
    with pytest.raises(DeltaError) as raised:
        DeltaLog.for_table(str(FOLDER / "tables" / name)).snapshot()
    assert raised.value.hint
    assert raised.value.table is not None
