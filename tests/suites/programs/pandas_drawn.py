"""Draw frames of pandas by seeds, and compare answers of pandas with those of the pandas API on Spark."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

FLOATS = 1e-9
FEW = ("a", "b/c", "c d=%41", None)
NAMES = ("plain", "Upper", "with space", "dotted.name", "ünï", "a,b;{c}", "per cent %", "select", "x=1")
"""A name with a backtick is not among them: the pandas API on Spark cannot make a frame with one, of any storage."""
WHOLE = 2**53
"""The pandas API on Spark returns a column of whole numbers in which some are missing as floats, which end here."""
LETTERS = "ab Z'\"\\%_ß漢🙂\n"
PARTITIONS = frozenset({"bool", "date", "int8", "string"})
"""Kinds of columns that a drawn table may be partitioned by."""


def _numbers(draw: random.Random, kind: str) -> Callable[[], Any]:
    bounds = np.iinfo(kind)
    return lambda: draw.choice((draw.randint(-9, 9), draw.randint(bounds.min, bounds.max)))


def kinds(draw: random.Random) -> dict[str, tuple[str, Callable[[], Any], bool]]:
    """List what a column may hold: a type of pandas, how a value is drawn, and whether one may be missing."""

    def moment() -> dt.datetime:
        return dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=draw.randint(-(10**15), 10**15))

    def money() -> decimal.Decimal:  # All have nine digits: pandas has no type that says how many there may be.
        return decimal.Decimal(draw.choice((-1, 1)) * draw.randint(10**8, 10**9 - 1)).scaleb(-2)

    return {
        "int8": ("int8", _numbers(draw, "int8"), False),
        "int32": ("int32", _numbers(draw, "int32"), False),
        "int64": ("int64", _numbers(draw, "int64"), False),
        "Int64": ("Int64", lambda: draw.randint(-WHOLE, WHOLE), True),
        "float32": ("float32", lambda: np.float32(draw.uniform(-1e6, 1e6)), True),
        "float64": ("float64", lambda: draw.choice((draw.uniform(-1e9, 1e9), 0.0, -0.5, float("inf"))), True),
        "bool": ("bool", lambda: draw.random() < 0.5, False),
        # Partitions hold an empty text as a missing one, so that each text has a letter.
        "string": ("object", lambda: "".join(draw.choices(LETTERS, k=draw.randint(1, 5))), True),
        "time": ("datetime64[ns]", moment, True),
        "date": ("object", lambda: moment().date(), True),
        "decimal": ("object", money, True),
        "bytes": ("object", lambda: draw.randbytes(draw.randint(0, 4)), True),
    }


def drawn_columns(draw: random.Random) -> dict[str, str]:
    """Draw four names and their types."""
    return {name: draw.choice(sorted(kinds(draw))) for name in draw.sample(NAMES, 4)}


def frame_of(draw: random.Random, columns: dict[str, str], first: int) -> pd.DataFrame:
    """Draw rows for columns; ``row`` numbers them from ``first``."""
    count = draw.choice((1, 2, 7, 60))
    known = kinds(draw)
    found = {"row": pd.Series(range(first, first + count), dtype="int64")}
    found["few"] = pd.Series(["a", *(draw.choice(FEW) for _ in range(count - 1))], dtype="object")
    for name, kind in columns.items():
        dtype, value, may_miss = known[kind]
        # The first value is never missing: a column without values has no type in pandas.
        values = [None if may_miss and row and draw.random() < 0.2 else value() for row in range(count)]
        found[name] = pd.Series(values, dtype=dtype)
    return pd.DataFrame(found)


def partitions_of(draw: random.Random, columns: dict[str, str]) -> str | list[str] | None:
    """Draw the columns that partition a table; none in a third of the cases."""
    able = [name for name, kind in columns.items() if kind in PARTITIONS]
    return draw.choice((None, "few", ["few", *able[:1]]))


def plain(value: Any) -> Any:
    """Make a value that compares alike wherever it comes from."""
    if value is None or value is pd.NaT or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    if isinstance(value, np.datetime64):
        return plain(pd.Timestamp(value))
    if isinstance(value, np.generic):
        return plain(value.item())
    return bytes(value) if isinstance(value, bytearray) else value


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame in the order of ``row``."""
    ordered = frame.sort_values("row")
    return [
        dict(zip(ordered.columns, map(plain, row), strict=True)) for row in ordered.itertuples(index=False, name=None)
    ]


def assert_same(found: Any, expected: Any) -> None:
    """Compare two answers: numbers that are added up may differ in their last digits."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, float) and isinstance(found, int | float):
        assert found == expected or math.isclose(found, expected, rel_tol=FLOATS, abs_tol=FLOATS)
    else:
        assert found == expected


def answers(frame: Any, columns: dict[str, str]) -> dict[str, Any]:
    """Ask a frame, of pandas or of pandas on Spark, what its columns allow."""
    found: dict[str, Any] = {"rows": len(frame), "few": _by_key(frame["few"].value_counts())}
    found["rows by few"] = _by_key(frame.groupby("few")["row"].count())
    found["kept"] = sorted(_values(frame[frame["row"] % 3 == 0]["row"]))
    found["newest"] = _values(frame.sort_values("row", ascending=False).head(3)["row"])
    found["of one few"] = sorted(_values(frame[frame["few"] == "c d=%41"]["row"]))
    found["without"] = len(frame.dropna(subset=["few"]))
    for name, kind in columns.items():
        column = frame[name]
        found[f"{name} is missing"] = int(column.isnull().sum())
        if kind in ("int8", "int32"):
            found[f"{name} added up"] = int(column.sum())
            found[f"{name} by few"] = _by_key(frame.groupby("few")[name].max())
        if kind in ("int64", "Int64", "int8"):
            found[f"{name} from, to"] = (int(column.min()), int(column.max()))
        if kind == "time":
            found[f"{name} from, to"] = (plain(column.min()), plain(column.max()))
        if kind == "float32":
            found[f"{name} mean"] = float(column.astype("float64").mean())
        if kind == "string":
            found[f"{name} upper"] = sorted(_values(column.dropna().str.upper()))
            found[f"{name} different"] = int(column.nunique())
        if kind == "bool":
            found[f"{name} any, all"] = (bool(column.any()), bool(column.all()))
    return found


def _values(column: Any) -> list[Any]:
    return list(map(plain, column.to_numpy().tolist()))


def _by_key(column: Any) -> dict[Any, Any]:
    local = column.to_pandas() if hasattr(column, "to_pandas") else column
    return {plain(key): plain(value) for key, value in local.to_dict().items()}
