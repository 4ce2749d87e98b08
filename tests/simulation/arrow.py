"""Operations of the engine that needs no JVM, over real files, for the same worlds.

The rows of a file are in a tag of its ``add``, too, so that the other engine of the simulation, and its judge, know
what the files that are written here hold. The tag is made of the bytes that are in the store.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.api.python.local import LocalTable
from pydelta.engines.arrow import layout
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile
from pydelta.testing import operations as ops
from pydelta.testing.row_files import ROWS_TAG, Rows, written_values
from tests.simulation.world import World

__all__ = ["KINDS", "arrow_operation", "file_bytes", "is_arrow", "tagged"]

_PREFIX: Final = "arrow"
KINDS: Final = {
    "append": "arrow append",
    "delete": "arrow delete",
    "hide": "arrow delete",
    "update": "arrow update",
    "upsert": "arrow merge",
    "drop partition": "arrow drop partition",
    "optimize": "arrow optimize",
    "compact": "arrow order",
    "purge": "arrow purge",
}
"""What stands for an operation of the other engine."""


def is_arrow(seed: str) -> bool:
    """Tell whether a seed has operations of this engine: those whose name begins so."""
    return seed.startswith(_PREFIX)


def arrow_operation(
    kind: str, partition: str, value: int, number: int
) -> tuple[Callable[[DeltaLog], Any], Callable[[Rows], Rows]]:
    """Return what an operation does, and what it does to the rows."""
    row, where = (partition, value), f"x = {value}"

    def merged(rows: Rows) -> Rows:
        return Counter({key: n for key, n in rows.items() if key != row}) if rows[row] else rows + Counter([row])

    made: dict[str, tuple[Callable[[LocalTable], Any], Callable[[Rows], Rows]]] = {
        "arrow append": (
            lambda table: table.append(_rows([partition] * 2, [value, 10 + number])),
            ops.append(partition, [value, 10 + number]).model,
        ),
        "arrow delete": (lambda table: table.delete(where), ops.delete_value(value).model),
        "arrow update": (
            lambda table: table.update(where, {"x": str(20 + number)}),
            ops.update_value(value, 20 + number).model,
        ),
        "arrow merge": (
            lambda table: table.merge(_rows([partition], [value]), ["p", "x"], matched="delete"),
            merged,
        ),
        "arrow drop partition": (
            lambda table: table.delete(f"p = '{partition}'"),
            ops.delete_partition(partition).model,
        ),
        "arrow optimize": (lambda table: table.optimize(), lambda rows: rows),
        "arrow order": (lambda table: table.optimize(f"p = '{partition}'", zorder_by=["x"]), lambda rows: rows),
        "arrow purge": (lambda table: table.purge(), lambda rows: rows),
    }
    run, model = made[kind]
    return lambda log: run(LocalTable(log)), model


def _rows(partitions: Sequence[str], values: Sequence[int]) -> pa.Table:
    return pa.table({"p": pa.array(partitions, pa.string()), "x": pa.array(values, pa.int64())})


def file_bytes(add: AddFile) -> bytes:
    """Write the file that a tag tells of."""
    target = io.BytesIO()
    pq.write_table(pa.table({"x": pa.array(written_values(add), pa.int64())}), target)
    return target.getvalue()


@contextlib.contextmanager
def tagged(world: World) -> Iterator[None]:
    """Let the files that this engine writes in a world have the tag, and its time."""
    plain = layout.add_of_file

    def add_of_file(record: Any) -> AddFile:
        add = plain(record)
        values = pq.read_table(io.BytesIO(world.memory.read(record.path)), columns=["x"], partitioning=None)["x"]
        return add.replace(tags={ROWS_TAG: ",".join(map(str, values.to_pylist()))}, modification_time=world.now_ms)

    with mock.patch.object(layout, "add_of_file", add_of_file):
        yield
