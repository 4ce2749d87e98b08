"""Check the ids of rows of an entry with format version 3: each file has its own, and keeps them."""

from __future__ import annotations

import itertools

from pydelta.log import DeltaLog
from pydelta.manifests.iceberg.entries import DATA, Entry
from pydelta.manifests.iceberg.entry import Found, find_newest
from pydelta.manifests.iceberg.metadata import FOLDER, current_snapshot
from pydelta.manifests.iceberg.publish import known_specs
from pydelta.manifests.iceberg.reading import read_list, read_manifest


def entries_of(log: DeltaLog, found: Found) -> list[Entry]:
    """Live entries of the newest snapshot."""
    root = found.metadata["location"].removesuffix(FOLDER)
    snapshot = current_snapshot(found.metadata)
    specs = known_specs(found.metadata)
    listed = read_list(log.store, snapshot["manifest-list"].removeprefix(root), snapshot["summary"])
    return [
        entry
        for manifest in listed
        for entry in read_manifest(log.store, manifest.manifest_path.removeprefix(root), manifest, specs)
    ]


class RowIds:
    """The first row ids that files have had."""

    def __init__(self) -> None:
        self._table: str | None = None
        self._first: dict[str, int] = {}

    @property
    def is_kept(self) -> bool:
        """Whether the entry has ids."""
        return self._table is not None

    def check(self, log: DeltaLog) -> None:
        """Compare the newest snapshot with the one before, and its files with one another."""
        found = find_newest(log.store)
        assert found is not None
        entries = entries_of(log, found)
        data = [entry for entry in entries if entry.content == DATA]
        vectors = [entry.blob.location for entry in entries if entry.blob is not None]
        assert len(set(vectors)) == len(vectors), "a data file has several vectors"
        if found.metadata["format-version"] == 2:
            assert not vectors
            assert all(entry.first_row_id is None for entry in data)
            return
        first = {entry.path: entry.first_row_id for entry in data}
        ranges = sorted((entry.first_row_id, entry.first_row_id + entry.rows) for entry in data)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges)), "ids overlap"
        assert all(end <= found.metadata["next-row-id"] for _, end in ranges), "ids beyond the next one"
        snapshot = current_snapshot(found.metadata)
        if found.metadata["table-uuid"] == self._table and "parent-snapshot-id" in snapshot:
            stay = first.keys() & self._first.keys()
            assert {path: first[path] for path in stay} == {path: self._first[path] for path in stay}, "ids changed"
        self._table, self._first = found.metadata["table-uuid"], first
