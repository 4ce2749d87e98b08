"""Read the tables through their Iceberg entries by Spark's Iceberg: ``python -m matrix.iceberg_spark FOLDER OUT --spark PYTHON``.

FOLDER has the tables that ``python -m matrix --folder`` left there. PYTHON is the interpreter that ``scripts/install-iceberg``
makes, and PYTHONPATH has the project's root. OUT gets the answers of the reader ``spark-iceberg``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from matrix.answers import outcome, said, values
from matrix.cases import CASES, Case
from pydelta.errors import SchemaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.manifests.iceberg import IcebergOptions, publish_iceberg
from tests.iceberg.spark_reader import SparkReader


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m matrix.iceberg_spark")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--spark", required=True)
    parser.add_argument("--format-version", type=int, choices=(2, 3), help="of entries that are new")
    asked = parser.parse_args()
    told: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder, SparkReader(asked.spark, Path(folder)) as spark:
        for writer in sorted(item for item in asked.folder.iterdir() if item.is_dir()):
            for number, case in enumerate(CASES):
                place = writer / str(number)
                if place.is_dir():
                    told.setdefault(writer.name, {})[case.name] = _answer(spark, place, case, asked.format_version)
    asked.out.write_text(json.dumps({"spark-iceberg": told}, indent=1, ensure_ascii=False))
    return 0


def _answer(spark: SparkReader, place: Path, case: Case, format_version: int | None) -> str:
    without = None if case.read == "*" else case.read.rpartition(" ")[2]
    try:
        options = IcebergOptions(format_version=format_version)
        entry = publish_iceberg(DeltaLog.for_table(str(place)), options).entry
    except (SchemaError, UnsupportedFeatureError) as error:
        return f"no entry: {said(error, str(place))}"
    try:
        return outcome(values(spark.rows(entry.location)), case.rows, without=without)
    except Exception as error:  # whatever it is, it is told in the matrix
        return f"refused: {said(error, str(place))}"


if __name__ == "__main__":
    sys.exit(main())
