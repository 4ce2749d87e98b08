"""Read the tables by Trino: ``python -m matrix.trino FOLDER OUT --trino URL --place s3a://BUCKET/FOLDER -o NAME=VALUE``.

The tables of FOLDER, which ``python -m matrix --folder`` left there, are copied to the place, registered with Trino's
catalog ``delta`` one after the other, read, and deleted again. OUT gets answers as ``spark_side.py read`` gives them.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import json
import re
import sys
from pathlib import Path
from typing import Any

from matrix.answers import outcome, said
from matrix.cases import CASES, Case
from pydelta.storage import open_store
from pydelta.tools.certify.trino import TrinoReader

__all__ = ["read_registered"]

_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d+)?( UTC)?$")


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m matrix.trino")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--trino", required=True)
    parser.add_argument("--place", required=True)
    parser.add_argument("-o", dest="options", action="append", default=[], metavar="NAME=VALUE")
    asked = parser.parse_args()
    options = dict(option.split("=", 1) for option in asked.options)
    told: dict[str, dict[str, str]] = {}
    for writer in sorted(item for item in asked.folder.iterdir() if item.is_dir()):
        for number, case in enumerate(CASES):
            if (writer / str(number)).is_dir():
                place = f"{asked.place}/{writer.name}/{number}"
                told.setdefault(writer.name, {})[case.name] = _answer(
                    writer / str(number), place, options, asked.trino, case
                )
    asked.out.write_text(json.dumps(told, indent=1, ensure_ascii=False))
    return 0


def _answer(table: Path, place: str, options: dict[str, str], trino: str, case: Case) -> str:
    store = open_store(place, options)
    for file in table.rglob("*"):
        if file.is_file():
            store.put(str(file.relative_to(table)), file.read_bytes())
    try:
        registered = TrinoReader(address=trino).register(place)
        try:
            return read_registered(registered, case)
        finally:
            registered.forget()
    except Exception as error:  # whatever it is, it is told in the matrix
        return f"refused: {said(error, place)}"
    finally:
        store.delete_many([info.path for info in store.list_all()])


def read_registered(registered: Any, case: Case) -> str:
    """Read a table that an engine knows; what came of it, in the words of the matrix."""
    names = [column[0] for column in registered.rows(f"SHOW COLUMNS FROM {registered.quoted}")]
    rows = registered.rows(f"SELECT * FROM {registered.quoted}")
    expected = {name.lower(): name for name in case.rows[0]}
    found = [{expected.get(name, name): value for name, value in zip(names, row, strict=True)} for row in rows]
    without = None if case.read == "*" else case.read.rpartition(" ")[2]
    exact = outcome([_fitted(row, case.rows[0], whole=True) for row in found], case.rows, without=without)
    if not exact.startswith("other rows"):
        return exact
    rounded = [{name: _cut(value) for name, value in row.items()} for row in case.rows]
    if outcome([_fitted(row, case.rows[0], whole=False) for row in found], rounded, without=without).startswith("same"):
        return "same, times to the millisecond"
    return exact


def _fitted(row: dict[str, Any], like: dict[str, Any], *, whole: bool) -> dict[str, Any]:
    """A row of Trino's JSON in the words of ``Case.rows``; without ``whole`` times are cut to the millisecond."""
    return {name: _value(value, like.get(name), whole=whole) for name, value in row.items()}


def _value(value: Any, like: Any, *, whole: bool) -> Any:
    if isinstance(value, str) and (match := _TIME.match(value)):
        day, clock, fraction, zone = match.groups()
        moment = dt.datetime.fromisoformat(f"{day}T{clock}{(fraction or '.0').ljust(7, '0')[:7]}")
        moment = moment.replace(tzinfo=dt.UTC) if zone else moment
        value = moment.isoformat()
        return value if whole else _cut(value)
    if isinstance(value, dict) and isinstance(like, list):
        return sorted([key, item] for key, item in value.items())
    if isinstance(value, list) and isinstance(like, dict):  # a row of Trino's has no names
        return dict(zip(like, value, strict=True))
    if isinstance(value, list) and like:
        return [None if item is None else _value(item, like[0], whole=whole) for item in value]
    if isinstance(value, str) and isinstance(like, str) and re.fullmatch(r"(?:[0-9a-f]{2})+", like):
        return base64.b64decode(value).hex()
    return value


def _cut(value: Any) -> Any:
    """A time to the millisecond; anything else as it is."""
    if not isinstance(value, str) or not re.match(r"\d{4}-\d\d-\d\dT", value):
        return value
    moment = dt.datetime.fromisoformat(value)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000).isoformat()


if __name__ == "__main__":
    sys.exit(main())
