"""Feed text: SQL, conditions, schemas, partition values, statistics, properties; and deliveries of inventories."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import polars as pl

from pydelta.api.sql.grammar import is_ours, parse_statement
from pydelta.api.sql.grammar.splitting import is_blank, split_statements
from pydelta.errors import DeltaError
from pydelta.manifests.state import STATE_PATH, read_state
from pydelta.predicate import parse_predicate
from pydelta.protocol.partitions import (
    hive_escape,
    hive_unescape,
    parse_partition_value,
    partition_dir,
    serialize_partition_value,
    typed_frame,
    zone_of,
)
from pydelta.protocol.schema import leaf_paths, to_arrow, to_polars_dtype, validate_names
from pydelta.protocol.stats import parse_stats_columns
from pydelta.protocol.types import StructField, StructType, parse_schema, parse_type
from pydelta.settings import TableProperties, canonical_properties, checked_properties
from pydelta.tools.inventory.delivery import Delivery, data_path
from pydelta.tools.inventory.manifest import InventoryManifest, decode_manifest, encode_manifest, md5_hex
from pydelta.tools.inventory.rows import raw_frames, write_csv, write_parquet
from tests.fuzz.contract import Broken, Target
from tests.fuzz.guarded import lake_store

__all__ = ["TEXT_TARGETS"]

_TYPES: Final = (
    "string",
    "long",
    "integer",
    "short",
    "byte",
    "float",
    "double",
    "boolean",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(10,2)",
    "decimal(38,38)",
)
_COLUMNS: Final = StructType(
    (
        *(StructField(name.split("(")[0], parse_type(name), True, {}) for name in _TYPES[:-1]),
        StructField("s", parse_type({"type": "struct", "fields": []}), True, {}),
    )
)


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    with contextlib.suppress(DeltaError):
        yield


def _text(data: bytes) -> str:
    """Lone surrogates and all: a string of Python may hold them."""
    return data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace")


def _decoded(data: bytes) -> str:
    try:
        return _text(data)
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _sql(data: bytes) -> None:
    text = _decoded(data)
    is_ours(text)
    is_ours(text, spark_refuses=True)
    is_blank(text)
    pieces, rest = split_statements(text)
    if sum(len(piece.text) for piece in pieces) + len(rest) > len(text):
        raise Broken("statements are longer than the text")
    parse_statement(text)


def _condition(data: bytes) -> None:
    bound = parse_predicate(_decoded(data), _COLUMNS)
    str(bound)


def _schema(data: bytes) -> None:
    schema = parse_schema(_decoded(data))
    if parse_schema(schema.to_json()) != schema:
        raise Broken("a schema does not come back")
    with _ours():
        validate_names(schema)
    with _ours():
        to_arrow(schema)
    with _ours():
        for field in schema.fields:
            to_polars_dtype(field.data_type)
    with _ours():
        list(leaf_paths(schema))
    with _ours():
        schema.tree()


def _partition(data: bytes) -> None:
    text = _decoded(data)
    for name in _TYPES:
        kind = parse_type(name)
        with _ours():
            value = parse_partition_value(text, kind)
            with contextlib.suppress(UnicodeEncodeError):  # text that no log can hold
                _comes_back(value, kind, text)
        with _ours():
            typed_frame(pl.DataFrame({"c": [text.encode("utf-8", "replace").decode()]}), _one(kind))
    with _ours():
        zone_of(text)
    if "%" not in text and hive_unescape(hive_escape(text)) != text:
        raise Broken("a name does not come back")
    folder = partition_dir({"a": text, text or "b": "x"})
    if "/../" in f"/{folder}/" or folder.startswith("/"):
        raise Broken(f"the folder {folder!r} leads out")


def _one(kind: Any) -> StructType:
    return StructType((StructField("c", kind, True, {}),))


def _comes_back(value: Any, kind: Any, text: str) -> None:
    again = parse_partition_value(serialize_partition_value(value, kind), kind)
    is_nan = isinstance(value, float) and math.isnan(value)
    if again != value and not is_nan and value not in ("", b"") and not (isinstance(value, Decimal) and again == value):
        raise Broken(f"{text!r} as {kind} is {value!r} and then {again!r}")


def _stats(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    leaves = [((name.split("(")[0],), parse_type(name)) for name in _TYPES[:-1]]
    parse_stats_columns(pl.Series([text, None]), leaves)


def _properties(data: bytes) -> None:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(values, dict) and all(isinstance(value, str) for value in values.values()):
        TableProperties.parse(values)
        canonical_properties(values)
        checked_properties(values)


def _state(data: bytes) -> None:
    store = lake_store()
    store.put(STATE_PATH, data)
    state = read_state(store)
    if state is not None:
        state.live()
        state.spread()


def _manifest(data: bytes) -> None:
    manifest = decode_manifest(data, source="the manifest")
    delivery = Delivery(bucket="lake", id="lakehouse", stamp="2024-01-01T00-00Z", complete=True)
    store = lake_store()
    for file in manifest.files:
        with _ours():
            path = data_path(store, file, delivery)
            if ".." in path.split("/") or not path.startswith("lake/lakehouse/"):
                with _ours():
                    store.read(path)
                    raise Broken(f"a delivery reads {path}")
    _ = manifest.columns


def _inventory(data: bytes) -> None:
    """A data file: the first byte says which format."""
    kind = "CSV" if data[:1] == b"C" else "Parquet"
    body = gzip.compress(data[1:], 1) if data[:2] == b"Cc" else data[1:]
    manifest = InventoryManifest.of(
        source_bucket="lake", destination_bucket="b", created_ms=0, file_format=kind, files=()
    )
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        for frame in raw_frames(Path(file.name), manifest, source="the data file"):
            _ = frame.height


class _Open(io.BytesIO):
    """Stays open when it is closed."""

    def close(self) -> None:
        """Nothing."""


def _inventories() -> list[bytes]:
    rows = pl.DataFrame(
        {
            "bucket": ["lake"] * 3,
            "key": ["t/a b", "t/p=é/x", "u/%41"],
            "size": [1, 2, 3],
            "modified": [1_700_000_000_000] * 3,
            "etag": ["e"] * 3,
            "storage_class": ["STANDARD"] * 3,
        }
    ).with_columns(pl.col("modified").cast(pl.Datetime("ms", "UTC")))
    parquet, csv = _Open(), _Open()
    write_parquet(rows, parquet)
    write_csv(rows, csv)
    plain = gzip.decompress(csv.getvalue())
    return [b"P" + parquet.getvalue(), b"C" + csv.getvalue(), b"Cc" + plain]


def _manifests() -> list[bytes]:
    found = []
    for kind in ("Parquet", "CSV"):
        manifest = InventoryManifest.of(
            source_bucket="lake", destination_bucket="b", created_ms=1, file_format=kind, files=()
        )
        body = json.loads(encode_manifest(manifest)[0])
        body["files"] = [{"key": "t/lake/lakehouse/data/x", "size": 3, "MD5checksum": md5_hex(b"x")}]
        found.append(json.dumps(body).encode())
    return found


_SQL: Final = (
    b"VACUUM lake.t RETAIN 168 HOURS DRY RUN",
    b"VACUUM delta.`/x` USING INVENTORY (SELECT * FROM i) WHERE p = 1",
    b"OPTIMIZE lake.t WHERE day >= '2024-01-01' ZORDER BY (a, b.c)",
    b"DESCRIBE HISTORY t LIMIT 5",
    b"DESC DETAIL '/x'",
    b"RESTORE TABLE t TO VERSION AS OF 3",
    b"RESTORE t TO TIMESTAMP AS OF '2024-01-01'",
    b"REORG TABLE t APPLY (PURGE)",
    b"GENERATE symlink_format_manifest FOR TABLE t",
    b"CONVERT TO DELTA parquet.`/x` PARTITIONED BY (a INT, b STRING)",
    b"CREATE OR REPLACE TABLE t SHALLOW CLONE s VERSION AS OF 1 TBLPROPERTIES ('a' = 'b') LOCATION '/y'",
    b"ALTER TABLE t DROP FEATURE x TRUNCATE HISTORY",
    b"/* c */ -- d\nFSCK REPAIR TABLE t DRY RUN",
    b"SELECT 1; SELECT ';';",
)
_CONDITIONS: Final = (
    b"long = 1 AND string IN ('a', 'b')",
    b"date >= DATE '2024-01-01' OR NOT boolean",
    b"double BETWEEN 1.5 AND 2e3",
    b"string LIKE 'a%' AND s.x IS NOT NULL",
    b"`decimal` <=> -1.25 AND timestamp < TIMESTAMP '2024-01-01 00:00:00'",
    b"binary = 'x' OR timestamp_ntz IS NULL",
    b"float != .5 and byte == 1 and short <> 2 and integer = 3",
)
_SCHEMAS: Final = (
    b'{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},{"name":"b","type":{"type":"array",'
    b'"elementType":{"type":"map","keyType":"string","valueType":"decimal(10,2)","valueContainsNull":true},"containsNull":true},'
    b'"nullable":false,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"c"}}]}',
    b'{"type":"struct","fields":[{"name":"s","type":{"type":"struct","fields":[]},"nullable":true,"metadata":{"comment":"x"}}]}',
)
_VALUES: Final = (
    b"1",
    b"-128",
    b"2024-01-01",
    b"2024-01-01 10:11:12.123456",
    b"2024-01-01T10:11:12.123456Z",
    b"1.50",
    b"true",
    b"NaN",
    b"a b%2F",
    b"+01:00",
    b"Europe/Berlin",
    b"__HIVE_DEFAULT_PARTITION__",
    b"0.12345678901234567890123456789012345678",
    b"1e3",
    b"2024-01-01 10:11:12+02:00",
)
_STATS: Final = (
    b'{"numRecords":3,"minValues":{"long":1,"string":"a","date":"2024-01-01","timestamp":"2024-01-01T00:00:00.000Z",'
    b'"decimal":1.5,"double":1.5,"boolean":true},"maxValues":{"long":3,"string":"z","decimal":"2.5"},"nullCount":{"long":0}}',
    b'{"numRecords":3,"tightBounds":false,"nullCount":{"long":0}}',
)
_STATE: Final = (
    b'{"tableId":"a","location":"s3a://lake/t","version":3,"generation":1,"generator":1,"partitionColumns":["p"],'
    b'"partitionTypes":["string"],"schemes":{},"partitions":{"p=a":3},"emptied":["p=b"]}',
)
_PROPERTIES: Final = (
    b'{"delta.deletedFileRetentionDuration":"interval 1 week","delta.logRetentionDuration":"interval 30 days",'
    b'"delta.checkpointInterval":"10","delta.enableDeletionVectors":"true","delta.dataSkippingNumIndexedCols":"32",'
    b'"delta.columnMapping.mode":"name","delta.targetFileSize":"128mb","delta.isolationLevel":"Serializable"}',
)


def _target(name: str, run: Callable[[bytes], None], seeds: Any, kind: str = "text") -> Target:
    if isinstance(seeds, tuple):
        return Target(name=name, run=run, seeds=lambda: list(seeds), kind=kind, words=_words(seeds))
    return Target(name=name, run=run, seeds=seeds, kind=kind)


def _words(seeds: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The words of the seeds, with the space before them."""
    return tuple({b" " + word for seed in seeds for word in seed.split()})


TEXT_TARGETS: Final = (
    _target("sql", _sql, _SQL),
    _target("condition", _condition, _CONDITIONS),
    _target("schema", _schema, _SCHEMAS, "json"),
    _target("partition", _partition, _VALUES),
    _target("statistics", _stats, _STATS, "json"),
    _target("properties", _properties, _PROPERTIES, "json"),
    _target("state", _state, _STATE, "json"),
    _target("manifest", _manifest, _manifests, "json"),
    _target("inventory", _inventory, _inventories, "bytes"),
)
