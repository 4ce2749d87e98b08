"""Compare ``pydelta.open`` with delta-rs: the same changes to copies of the same tables, both in this process, no JVM.

The tables are written by delta-rs. After every turn the rows of both copies are compared. ``processor`` is the ratio of
processor time over all threads, which other work on the machine changes less than it does the ratio of seconds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks._timing import ratios

ROWS = int(os.environ.get("PYDELTA_BENCH_ROWS", "2000000"))
FILES = int(os.environ.get("PYDELTA_BENCH_FILES", "1000"))
ROUNDS = int(os.environ.get("PYDELTA_BENCH_ROUNDS", "3"))
LARGE = 16
_ONE_GIB = 1 << 30
_Turn = Callable[[str], None]


def _rows(first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count, dtype=np.int64)
    random = np.random.default_rng(first + 7)
    return pa.table(
        {
            "id": ids * 7919 % ROWS,
            "p": (ids % 20).astype(np.int32),
            "v": random.random(count),
            "s": pa.array([f"customer-{n % 100_000}" for n in ids.tolist()]),
            "t": pa.array(1_577_836_800_000_000 + ids * 1_000_003, pa.timestamp("us", "UTC")),
        }
    )


def make_tables(folder: str) -> None:
    """Write ``large`` and ``small``: the same number of rows in 16 files, and in many."""
    import deltalake

    for name, files in (("large", LARGE), ("small", FILES)):
        each = ROWS // files
        for number in range(files):
            deltalake.write_deltalake(f"{folder}/{name}", _rows(number * each, each), mode="append")


def _source(count: int) -> pa.Table:
    """Half of the rows are there, scattered; half are new."""
    rows = _rows(0, count)
    step = max(ROWS // count, 1)
    ids = np.concatenate([np.arange(count // 2) * step, ROWS + np.arange(count - count // 2)])
    return rows.set_column(0, "id", pa.array(ids.astype(np.int64)))


def _ours(path: str) -> Any:
    import pydelta

    return pydelta.open(path)


def _theirs(path: str) -> Any:
    import deltalake

    return deltalake.DeltaTable(path)


def _append_theirs(path: str, rows: pa.Table) -> None:
    import deltalake

    deltalake.write_deltalake(path, rows, mode="append")


def operations() -> dict[str, tuple[str, _Turn, _Turn]]:
    """Name -> the table it is done to, by this engine and by delta-rs."""
    one, part = ROWS // 2 + 1, f"id BETWEEN {ROWS // 2} AND {ROWS // 2 + 999}"
    small, large = _source(1000), _source(200_000)

    def merged(rows: pa.Table) -> tuple[_Turn, _Turn]:
        def theirs(path: str) -> None:
            merger = _theirs(path).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()

        return lambda path: _ours(path).merge(rows, on="id"), theirs

    found: dict[str, tuple[str, _Turn, _Turn]] = {
        "append one row": (
            "large",
            lambda path: _ours(path).append(small.slice(0, 1)),
            lambda path: _append_theirs(path, small.slice(0, 1)),
        ),
        "delete one row": (
            "large",
            lambda path: _ours(path).delete(f"id = {one}"),
            lambda path: _theirs(path).delete(f"id = {one}"),
        ),
        "update 1,000 rows": (
            "large",
            lambda path: _ours(path).update(part, {"v": "0.5"}),
            lambda path: _theirs(path).update(updates={"v": "0.5"}, predicate=part),
        ),
        "merge 1,000 rows": ("large", *merged(small)),
        "merge 200,000 rows": ("large", *merged(large)),
        f"compact {FILES} files": (
            "small",
            lambda path: _ours(path).optimize(),
            lambda path: _theirs(path).optimize.compact(target_size=_ONE_GIB),
        ),
        f"zorder {FILES} files": (
            "small",
            lambda path: _ours(path).optimize(zorder_by=["id", "s"]),
            lambda path: _theirs(path).optimize.z_order(["id", "s"], target_size=_ONE_GIB),
        ),
    }
    return found


def run() -> dict[str, Any]:
    """2,000,000 rows (``PYDELTA_BENCH_ROWS``) in 16 files, and in 1,000; medians, and ours over that of delta-rs."""
    wanted = os.environ.get("PYDELTA_BENCH_ONLY", "")
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_tables(folder)
        for name, (kind, ours, theirs) in operations().items():
            if wanted in name:
                result[name] = _compare({"pydelta": ours, "delta-rs": theirs}, f"{folder}/{kind}", folder)
                print(name, result[name], flush=True)
    return result


def _compare(contestants: dict[str, _Turn], base: str, folder: str) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {contestant: [] for contestant in contestants}
    processor: dict[str, list[float]] = {contestant: [] for contestant in contestants}
    for turn in range(ROUNDS + 1):
        seen = set()
        for contestant, change in contestants.items():
            copy = f"{folder}/copy-{turn}-{contestant}"
            shutil.copytree(base, copy)
            started, worked = time.perf_counter(), time.process_time()
            change(copy)
            took, worked = time.perf_counter() - started, time.process_time() - worked
            if turn:
                seconds[contestant].append(took)
                processor[contestant].append(worked)
            seen.add(_fingerprint(copy))
            shutil.rmtree(copy)
        assert len(seen) == 1, seen
    medians, worked_ = ({name: sorted(v)[len(v) // 2] for name, v in values.items()} for values in (seconds, processor))
    return {
        "time": ratios(medians, to="delta-rs")["pydelta"],
        "processor": ratios(worked_, to="delta-rs")["pydelta"],
        "seconds": {contestant: round(value, 3) for contestant, value in medians.items()},
    }


def _fingerprint(path: str) -> str:
    import deltalake

    query = "select count(*) as n, sum(id) as ids, sum(p) as parts, count(distinct s) as names, sum(v) as v from t"
    found = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path)).execute(query).read_all()
    values = {name: found.column(name).to_pylist()[0] for name in found.schema.names}
    return str({**values, "v": round(values["v"], 2)})
