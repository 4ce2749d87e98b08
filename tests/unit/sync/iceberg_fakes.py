"""A publisher of Iceberg metadata for tests of the entry: numbered files with a schema, and nothing to read."""

from __future__ import annotations

import json
from types import SimpleNamespace

from pydelta.storage import PutOutcome

FOLDER = "_pydelta/iceberg"
TYPES = {"long": "long", "integer": "int", "string": "string"}


class FakePublisher:
    """Stands for ``published_iceberg``. ``refuses`` is raised if it is set."""

    def __init__(self):
        self.refuses = None
        self.calls = 0
        self.kinds = {}

    def __call__(self, log, options):
        self.calls += 1
        if self.refuses is not None:
            raise self.refuses
        snapshot = log.update()
        number = 1
        while (data := read(log, number)) is not None:
            if data["properties"] == self._properties(snapshot) and not options.full:
                return self._published(log, snapshot, number, full=False)
            number += 1
        fields = [
            {
                "id": at,
                "name": field.name,
                "required": False,
                "type": self.kinds.get(field.name, TYPES[str(field.data_type.name)]),
            }
            for at, field in enumerate(snapshot.schema.fields, 1)
        ]
        body = {
            "format-version": 2,
            "current-schema-id": 0,
            "schemas": [{"schema-id": 0, "type": "struct", "fields": fields}],
            "properties": self._properties(snapshot),
            "location": f"{log.uri}/{FOLDER}",
            "current-snapshot-id": 2,
            "snapshots": [{"snapshot-id": 2, "summary": {"pydelta.version": str(snapshot.version)}}],
            "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
        }
        text = json.dumps(body).encode()
        assert (
            log.store.put_if_absent(f"{FOLDER}/metadata/v{number}.metadata.json", text) is not PutOutcome.ALREADY_EXISTS
        )
        log.store.put(f"{FOLDER}/metadata/version-hint.text", str(number).encode())
        return self._published(log, snapshot, number, full=options.full or number == 1)

    @staticmethod
    def _properties(snapshot):
        return {"pydelta.version": str(snapshot.version), "pydelta.table.id": snapshot.metadata.id}

    @staticmethod
    def _published(log, snapshot, number, *, full):
        entry = SimpleNamespace(
            location=f"{log.uri}/{FOLDER}",
            metadata_location=place(log, number),
            number=number,
            table_id=snapshot.metadata.id,
            version=snapshot.version,
            snapshot_id=2,
        )
        return SimpleNamespace(
            entry=entry, previous=None, full=full, reason="it was asked for" if full else None, manifests_written=1,
            manifests_kept=0, files_added=2, files_removed=0, delete_files=0, puts=4,
        )  # fmt: skip


def place(log, number):
    return f"{log.uri}/{FOLDER}/metadata/v{number}.metadata.json"


def read(log, number):
    path = f"{FOLDER}/metadata/v{number}.metadata.json"
    return json.loads(log.store.read(path)) if log.store.head(path) is not None else None
