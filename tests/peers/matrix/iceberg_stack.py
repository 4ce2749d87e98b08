"""Read the tables through Iceberg entries in the stack's metastore, by Trino and Presto.

``PYTHONPATH=../.. python -m matrix.iceberg_stack FOLDER OUT --metastore URI --trino HOST:PORT --presto HOST:PORT
--place s3a://BUCKET/FOLDER -o NAME=VALUE`` copies the tables of FOLDER, which ``python -m matrix --folder`` left there, to the
place, one after the other, makes their entries, and deletes all again. OUT gets answers by reader, for
``python -m matrix --iceberg OUT``.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from catalog_sync.iceberg.sync import sync_iceberg
from catalog_sync.names import TableName, iceberg_name
from catalog_sync.thrift.client import Metastore, MetastoreAddress
from jobs.verify.trino import Trino
from matrix.answers import said
from matrix.cases import CASES, Case
from matrix.trino import read_registered
from pydelta.errors import SchemaError, UnsupportedFeatureError
from pydelta.log import DeltaLog
from pydelta.storage import open_store


class _Client(Trino):
    """A client that gets times to the microsecond."""

    def __init__(self, address: str, name: Literal["Trino", "Presto"]) -> None:
        super().__init__(address, "matrix", name)
        self._headers["X-Trino-Client-Capabilities"] = "PARAMETRIC_DATETIME"


@dataclass(frozen=True)
class _Entry:
    """An entry in an engine's catalog, as ``read_registered`` asks for it."""

    client: Trino
    name: TableName

    @property
    def quoted(self) -> str:
        return f'iceberg."{self.name.database}"."{self.name.name}"'

    def rows(self, statement: str) -> list[list[Any]]:
        return [[_opened(value) for value in row] for row in self.client.rows(statement)]


def _opened(value: Any) -> Any:
    """A nested value, which Presto gives as text of JSON, and its parts as texts in that."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return _opened(json.loads(value))
    if isinstance(value, list):
        return [_opened(item) for item in value]
    return {key: _opened(item) for key, item in value.items()} if isinstance(value, dict) else value


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m matrix.iceberg_stack")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--metastore", required=True)
    parser.add_argument("--trino", required=True)
    parser.add_argument("--presto", required=True)
    parser.add_argument("--place", required=True)
    parser.add_argument("-o", dest="options", action="append", default=[], metavar="NAME=VALUE")
    asked = parser.parse_args()
    options = dict(option.split("=", 1) for option in asked.options)
    engines: dict[str, Trino] = {
        "trino-iceberg": _Client(asked.trino, "Trino"),
        "presto-iceberg": _Client(asked.presto, "Presto"),
    }
    told: dict[str, dict[str, dict[str, str]]] = {name: {} for name in engines}
    for writer in sorted(item for item in asked.folder.iterdir() if item.is_dir()):
        for number, case in enumerate(CASES):
            if (writer / str(number)).is_dir():
                place = f"{asked.place}/{writer.name}/{number}"
                found = _answers(writer / str(number), (place, options), asked.metastore, engines, case)
                for name, answer in found.items():
                    told[name].setdefault(writer.name, {})[case.name] = answer
    asked.out.write_text(json.dumps(told, indent=1, ensure_ascii=False))
    return 0


def _answers(
    table: Path, at: tuple[str, dict[str, str]], metastore: str, engines: dict[str, Trino], case: Case
) -> dict[str, str]:
    place, options = at
    store = open_store(place, options)
    for file in table.rglob("*"):
        if file.is_file() and "_pydelta" not in file.parts:
            store.put(str(file.relative_to(table)), file.read_bytes())
    entry = iceberg_name(TableName(database="lake", name=f"matrix_{table.parent.name.replace('-', '_')}_{table.name}"))
    log = DeltaLog.for_table(place, options=options)
    with Metastore(MetastoreAddress.parse(metastore)) as client:
        try:
            sync_iceberg(log, client, entry, iceberg=True)
            return {name: _answer(_Entry(engine, entry), case, place) for name, engine in engines.items()}
        except (SchemaError, UnsupportedFeatureError) as error:
            return dict.fromkeys(engines, f"no entry: {said(error, place)}")
        finally:
            client.drop(entry.database, entry.name)
            store.delete_many([info.path for info in store.list_all()])


def _answer(entry: _Entry, case: Case, place: str) -> str:
    try:
        return read_registered(entry, case)
    except Exception as error:  # whatever it is, it is told in the matrix
        return f"refused: {said(error, place)}"


if __name__ == "__main__":
    sys.exit(main())
