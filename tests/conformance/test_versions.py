"""Time travel to the versions of every table of the corpus, against the rows that another engine read of each.

``passing_versions.txt`` lists the versions whose rows are those; it may only grow. What the other engine could not read
is in ``versions_without_rows.txt``, with what becomes of it here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pydelta.errors import DeltaError
from pydelta.log import DeltaLog
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.vectors import vector_path
from tests.conformance.test_rows import FOLDER, _canon, _difference, _index, with_json

pytestmark = pytest.mark.spark

KEPT = Path(__file__).with_name("passing_versions.txt")
WITHOUT_ROWS = Path(__file__).with_name("versions_without_rows.txt")
READ = "read"
UNREAD = {
    "files absent": "FILE_NOT_EXIST",
    "vectors absent": "deletion vector file .* is missing",
    "files in another store": "No FileSystem for scheme",
}
"""What is not there to be read, and what the error says beside the name of one such file."""

# Versions whose rows in the index are those of delta-rs, and not those of the reference where it read them, too.
_BYTES = "delta-rs gives out the bytes of a variant, which depend on who encoded it, and we its JSON"
_NANOSECONDS = "delta-rs reads INT96 as nanoseconds in 64 bits, which hold no year before 1678 or after 2261"
DISAGREED = {
    "delta-rs__data__spark-variant-checkpoint": ({0, 1, 2}, _BYTES),
    "duckdb__variant__basic": ({1}, _BYTES),
    "golden__golden-tables__spark-variant-checkpoint": ({0, 1, 2}, _BYTES),
    "trino__resources__databricks153__variant_types": ({0}, _BYTES),
    "trino__resources__databricks73__old_timestamps": ({1}, _NANOSECONDS),
    "trino__resources__databricks73__pruning__timestamp": ({17}, _NANOSECONDS),
}


def _cases() -> list[dict[str, Any]]:
    return [case for case in _index() if case.get("history")]


def _history(case: dict[str, Any], *, rows: bool) -> dict[int, dict[str, Any]]:
    return {int(text): entry for text, entry in case["history"].items() if ("error" not in entry) is rows}


@cache
def _listed(path: Path) -> dict[str, dict[int, str]]:
    """Table -> version -> what is said of it; a table and what is said of some of its versions a line."""
    found: dict[str, dict[int, str]] = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(": ")
            versions, _, what = rest.partition(" | ")
            found.setdefault(name, {}).update(dict.fromkeys(map(int, versions.split()), what))
    return found


def _folder(case: dict[str, Any]) -> Path:
    return FOLDER / "tables" / case["id"]


def _frame(spark: Any, case: dict[str, Any], version: int) -> Any:
    return spark.read.format("delta").option("versionAsOf", version).load(str(_folder(case)))


def _rows_of_versions(spark: Any, case: dict[str, Any], versions: set[int]) -> dict[int, pa.Table]:
    """One job for all versions with the same columns: there are many, and each is small."""
    from pyspark.sql import functions as F

    alike: dict[str, dict[int, Any]] = {}
    for version in sorted(versions):
        frame = _frame(spark, case, version)
        plain = frame.select(*with_json(frame), F.lit(version).alias("__version"))
        alike.setdefault(frame.schema.json(), {})[version] = plain
    found = {}
    for frames in alike.values():
        rows = reduce(lambda left, right: left.unionAll(right), frames.values()).toArrow()
        for version in frames:
            found[version] = rows.filter(pc.equal(rows["__version"], version)).drop_columns(["__version"])
    return found


def test_the_corpus_has_versions_and_the_lists_name_some_of_them():
    versions = {(case["id"], version) for case in _cases() for version in _history(case, rows=True)}
    without = {(case["id"], version) for case in _cases() for version in _history(case, rows=False)}
    kept = {(name, version) for name, found in _listed(KEPT).items() for version in found}
    disagreed = {(name, version) for name, (found, _) in DISAGREED.items() for version in found}
    assert (len(versions), len(without)) == (673, 265)
    assert kept | disagreed == versions
    assert (len(kept), len(disagreed)) == (663, 10)
    assert {(name, version) for name, found in _listed(WITHOUT_ROWS).items() for version in found} == without


@pytest.mark.parametrize("case", [c for c in _cases() if _history(c, rows=True)], ids=lambda case: case["id"])
def test_each_version_has_the_rows_that_another_engine_read(spark, case):
    history = _history(case, rows=True)
    kept = set(_listed(KEPT).get(case["id"], {}))
    disagreed, _ = DISAGREED.get(case["id"], (set(), ""))
    problems = {}
    for version, rows in _rows_of_versions(spark, case, set(history)).items():
        found = _canon().fix_types(rows)
        problem = _difference({**case, **history[version]}, found)
        if problem is not None:
            problems[version] = problem
        if version in disagreed:
            assert found.num_rows == history[version]["rows"]
            if version == case["versions"][1]:
                assert _difference(case, found) is None, "the reference read it, too"
    assert {version: problem for version, problem in problems.items() if version in kept} == {}
    assert set(problems) == disagreed
    assert set(history) - disagreed == kept, f"add them to {KEPT.name}"


@pytest.mark.parametrize("case", [c for c in _cases() if _history(c, rows=False)], ids=lambda case: case["id"])
def test_what_the_other_engine_could_not_read_is_read_or_refused_by_name(spark, case):
    said = _listed(WITHOUT_ROWS)[case["id"]]
    read = {version for version, what in said.items() if what == READ}
    for version, rows in _rows_of_versions(spark, case, read).items():
        if version < case["versions"][1]:
            assert rows.num_rows == _rows_by_the_log(_folder(case), version), version
        elif case["expect"] == "rows":
            assert _difference(case, _canon().fix_types(rows)) is None
        else:
            assert (rows.num_rows, case["snapshot"]["numFiles"]) == (0, 0)
    unread = {version: what for version, what in said.items() if what in UNREAD}
    for version, what in unread.items():
        names = _not_there(case, version)[what]
        assert names, version
        with pytest.raises(Exception, match=UNREAD[what]) as raised:
            _rows_of_versions(spark, case, {version})
        assert any(name in str(raised.value) for name in names), version
    for version in set(said) - read - set(unread):
        with pytest.raises(DeltaError) as raised:
            _frame(spark, case, version).collect()
        assert type(raised.value).__name__ == said[version], version
        assert raised.value.hint


def _not_there(case: dict[str, Any], version: int) -> dict[str, list[str]]:
    """Names of files that the log names and that are not on this machine, by what they are."""
    files = DeltaLog.for_table(str(_folder(case))).snapshot(version=version).files
    paths = [decode_log_path(path).text for path in files.core["path"]]
    vectors = [vector_path(add.deletion_vector) for add in files.adds(files.core) if add.deletion_vector]

    def absent(paths: Iterable[str | None]) -> list[str]:
        here = [_folder(case) / path for path in paths if path is not None and "://" not in path]
        return [path.name for path in here if not path.exists()]

    elsewhere = [path for path in paths if "://" in path]
    return {"files absent": absent(paths), "vectors absent": absent(vectors), "files in another store": elsewhere}


def _rows_by_the_log(table: Path, version: int) -> int:
    """Rows by the commits alone: those of the files that are live, less those that vectors delete."""
    live: dict[str, int] = {}
    for number in range(version + 1):
        actions = _actions(table / "_delta_log" / f"{number:020}.json")
        for action in actions:
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
        for action in actions:
            add = action.get("add")
            if add:
                vector = add.get("deletionVector") or {}
                rows = pq.read_metadata(table / decode_log_path(add["path"]).text).num_rows
                live[add["path"]] = rows - vector.get("cardinality", 0)
    return sum(live.values())


def _actions(commit: Path) -> list[dict[str, Any]]:
    """What the lines begin with: of some tables each has text behind its object, which readers are to ignore."""
    decode = json.JSONDecoder().raw_decode
    return [decode(line)[0] for line in commit.read_text().splitlines()]
