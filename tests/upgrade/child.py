"""One version of the library: it does what lines of JSON on its input ask, and answers each with a line.

It runs with the ``PYTHONPATH`` of its version and imports nothing else of the project, so that each version's own
``pydelta`` is used. Both have ``pydelta.open`` with ``append``, ``delete`` and ``scan``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import polars as pl

import pydelta
from pydelta.log import DeltaLog


def answer(uri: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Do one thing, and say what is in the table then."""
    table, first = pydelta.open(uri), asked.get("first", 0)
    if asked["do"] == "where":
        return {"where": pydelta.__file__}
    if asked["do"] == "append":
        table.append(_rows(range(first, first + asked["count"])))
    elif asked["do"] == "delete":
        table.delete(f"id = {first}")
    elif asked["do"] == "checkpoint":
        DeltaLog.for_table(uri).checkpoint()
    elif asked["do"] == "many":  # beside the other version: commits that win, lose and are tried again
        for number in range(first, first + asked["count"]):
            pydelta.open(uri).append(_rows([number]))
            if number % 3 == 2:
                pydelta.open(uri).delete(f"id = {number - 1}")
    fresh = pydelta.open(uri)
    return {"version": fresh.version, "ids": sorted(pl.from_arrow(fresh.scan())["id"].to_list())}


def _rows(ids: Any) -> pl.DataFrame:
    return pl.DataFrame({"id": list(ids)}, schema={"id": pl.Int64})


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(sys.argv[1], json.loads(line))), flush=True)
