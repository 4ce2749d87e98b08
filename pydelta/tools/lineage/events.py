"""Build OpenLineage events and data sets as plain JSON objects. Pure. They never contain credentials."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pydelta.errors.redaction import hide_text
from pydelta.log import Snapshot
from pydelta.protocol.types import ArrayType, DataType, MapType, StructType
from pydelta.storage.kinds import elsewhere_scheme, kind_of

__all__ = ["Run", "dataset_name", "input_of", "output_of", "place_of_input", "run_event"]

_SPEC: Final = "https://openlineage.io/spec"
_FACETS: Final = {
    "schema": "1-2-0/SchemaDatasetFacet",
    "version": "1-0-1/DatasetVersionDatasetFacet",
    "dataSource": "1-0-1/DatasourceDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job.

    Args:
        id: A UUID.
        namespace: Namespace of the job.
        job: Name of the job.
        engine: Name and version of the program that runs it, such as ``pydelta/0.1.0``.
        kind: ``JOB``, ``COMMAND`` or ``STREAM``, for the facet ``jobType``.
    """

    id: str
    namespace: str
    job: str
    engine: str
    kind: str = "JOB"


def _facet(facet: str, producer: str, /, **fields: Any) -> dict[str, Any]:
    version = _FACETS[facet]
    url = f"{_SPEC}/facets/{version}.json#/$defs/{version.partition('/')[2]}"
    return {facet: {"_producer": producer, "_schemaURL": url, **fields}}


def _producer(engine: str) -> str:
    name, _, version = engine.partition("/")
    return f"urn:{name}:{version or 'unknown'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables that a run has read and written so far."""

    inputs: Sequence[Mapping[str, Any]] = ()
    outputs: Sequence[Mapping[str, Any]] = field(default_factory=tuple)


def run_event(kind: str, run: Run, tables: Tables, *, at_ms: int, error: str | None = None) -> dict[str, Any]:
    """Build an event.

    Args:
        kind: ``START``, ``RUNNING``, ``COMPLETE`` or ``FAIL``.
        run: The run.
        tables: Its tables so far.
        at_ms: Time of the event, epoch milliseconds.
        error: Why the run failed, in one line.
    """
    producer = _producer(run.engine)
    name, _, version = run.engine.partition("/")
    facets = _facet("processing_engine", producer, name=name, version=version or "unknown")
    if error is not None:
        facets |= _facet("errorMessage", producer, message=hide_text(error), programmingLanguage="PYTHON")
    processing = "STREAMING" if run.kind == "STREAM" else "BATCH"
    return {
        "eventType": kind,
        "eventTime": shown(at_ms),
        "producer": producer,
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run.id, "facets": facets},
        "job": {
            "namespace": run.namespace,
            "name": run.job,
            "facets": _facet("jobType", producer, processingType=processing, integration="DELTA", jobType=run.kind),
        },
        "inputs": list(tables.inputs),
        "outputs": list(tables.outputs),
    }


def shown(at_ms: int) -> str:
    """Format a time for events.

    Example:
        >>> shown(1_700_000_000_123)
        '2023-11-14T22:13:20.123Z'
    """
    moment = dt.datetime.fromtimestamp(at_ms // 1000, tz=dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"


def dataset_name(uri: str) -> tuple[str, str]:
    """Return namespace and name of a location as OpenLineage names data sets, without user and password.

    Example:
        >>> dataset_name("s3a://warehouse/lake/orders"), dataset_name("file:///data/a%20b")
        (('s3://warehouse', 'lake/orders'), ('file', '/data/a b'))
    """
    parts = urlsplit(uri)
    scheme = parts.scheme.lower()
    if scheme in ("", "file"):
        return "file", unquote(parts.path).rstrip("/") or "/"
    place, host = parts.netloc, parts.netloc.rpartition("@")[2]
    if not kind_of(scheme).container:  # In these schemes, the container comes before the @.
        place = host
    path = uri.split("://", 1)[1].partition("/")[2].strip("/")
    return f"{elsewhere_scheme(scheme)}://{place}", hide_text(path) or "/"


def input_of(snapshot: Snapshot, engine: str) -> dict[str, Any]:
    """Describe a table that was read, with its schema and version."""
    namespace, name = dataset_name(snapshot.table_uri)
    return {"namespace": namespace, "name": name, "facets": _facets(snapshot, engine)}


def output_of(snapshot: Snapshot, engine: str, *, rows: int | None, files: int, size: int) -> dict[str, Any]:
    """Describe a table that was written, with its schema, its version and the amount written.

    Args:
        snapshot: The version that was written.
        engine: Name and version of the program that wrote it.
        rows: Number of rows written; None if the commit does not record it.
        files: Number of data files added.
        size: Their size in bytes.
    """
    statistics = {"rowCount": rows} if rows is not None else {}
    facet = _facet("outputStatistics", _producer(engine), **statistics, size=size, fileCount=files)
    return input_of(snapshot, engine) | {"outputFacets": facet}


def place_of_input(location: str) -> dict[str, Any]:
    """Describe files that were read, of which only the location is known."""
    namespace, name = dataset_name(location)
    return {"namespace": namespace, "name": name, "facets": {}}


def _facets(snapshot: Snapshot, engine: str) -> dict[str, Any]:
    producer = _producer(engine)
    namespace, _ = dataset_name(snapshot.table_uri)
    fields = [_field(item.name, item.data_type) for item in snapshot.schema.fields]
    return (
        _facet("schema", producer, fields=fields)
        | _facet("version", producer, datasetVersion=str(snapshot.version))
        | _facet("dataSource", producer, name=namespace, uri=namespace)
    )


def _field(name: str, kind: DataType) -> dict[str, Any]:
    """Describe a column for the schema facet, including nested fields."""
    if isinstance(kind, StructType):
        inside = [_field(item.name, item.data_type) for item in kind.fields]
        return {"name": name, "type": "struct", "fields": inside}
    if isinstance(kind, ArrayType):
        return {"name": name, "type": "array", "fields": [_field("_element", kind.element_type)]}
    if isinstance(kind, MapType):
        inside = [_field("key", kind.key_type), _field("value", kind.value_type)]
        return {"name": name, "type": "map", "fields": inside}
    return {"name": name, "type": str(kind)}
