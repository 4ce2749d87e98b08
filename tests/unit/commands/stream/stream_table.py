"""A table in memory, and streams over it, for tests that plan without Spark."""

from __future__ import annotations

import uuid

import pyarrow as pa

from pydelta.commands.stream.admission import AdmissionBudget
from pydelta.commands.stream.offsets import StreamOffset
from pydelta.commands.stream.options import SourceOptions
from pydelta.commands.stream.source import TableStream
from pydelta.log import DeltaLog
from pydelta.storage import MemoryStore
from pydelta.testing.tables import TableBuilder


class Table:
    """A table in memory whose files are told apart by their order."""

    def __init__(self, **properties):
        store = MemoryStore(f"memory://{uuid.uuid4().hex}/t")
        named = {f"delta.{name}": value for name, value in properties.items()}
        self.builder = TableBuilder(store, columns={"x": "long"}, properties=named)
        self.log = DeltaLog.for_table(store.root, store=store)
        self.names = {}

    def file(self, name, **changes):
        add = self.builder.file(pa.table({"x": [1]}))
        add = add.replace(modification_time=len(self.names), **changes)
        self.names[add.path] = name
        return add

    def append(self, *names):
        adds = [self.file(name) for name in names]
        self.builder.commit(*adds)
        return adds

    def stream(self, **options):
        given = {name: str(value) for name, value in options.items()}
        return TableStream(self.log, SourceOptions.parse(given), self.log.update())

    def offset(self, version, index=-1, initial=False):
        return StreamOffset(table_id=self.builder.metadata.id, version=version, index=index, is_initial=initial)

    def batch(self, stream, start, end):
        found = stream.batch(start, end)
        paths = [] if found.initial is None else found.initial["path"].to_list()
        return "".join(self.names[path] for path in [*paths, *(file.path for file in found.changed)])

    def run(self, stream, start=None, *, files=None, size=None):
        """Batches until nothing is left, as (offset, names); a new stream plans each batch again, as after a crash."""
        batches = []
        while True:
            end = stream.latest(start, AdmissionBudget(max_files=files, max_bytes=size))
            if end is None or end == start:
                return batches, start
            again = TableStream(self.log, stream.options, self.log.update())
            names = self.batch(stream, start, end)
            assert self.batch(again, start, end) == names
            batches.append(((end.version, end.index, end.is_initial), names))
            start = end
