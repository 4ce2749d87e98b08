"""Count what is in a table's files and in its log, without Spark: ``outages.py LOCATION``.

It prints rows, distinct ids and versions.

``scripts/test-stack-outages`` asks it after each outage. Every file that the log names is read, and each commit of the
log is parsed.
"""

from __future__ import annotations

import io
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from pydelta.log import DeltaLog
from pydelta.storage import open_store


def main(location: str) -> None:
    """Print the three numbers."""
    store = open_store(location)
    commits = sorted(
        info.path for info in store.list_all() if info.path.startswith("_delta_log/0") and info.path.endswith(".json")
    )
    for number, path in enumerate(commits):
        assert int(path.removeprefix("_delta_log/").removesuffix(".json")) == number, commits
        lines = store.read(path).decode().splitlines()
        assert lines and all(json.loads(line) for line in lines), path
    snapshot = DeltaLog.for_table(location, store=store).snapshot()
    files = [pq.read_table(io.BytesIO(store.read(path)), columns=["id"]) for path in snapshot.files.core["path"]]
    ids = pa.concat_tables(files)["id"]
    print(len(ids), len(ids.unique()), len(commits))


if __name__ == "__main__":
    main(sys.argv[1])
