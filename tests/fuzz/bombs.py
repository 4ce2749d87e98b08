"""Write inputs that are as nasty as can be thought of into the folder of kept ones: ``python -m tests.fuzz.bombs``."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.parent import KEPT


def bombs() -> Iterator[tuple[str, str, bytes]]:
    """Target, name and input of each."""
    for name, rows, width in (("wide-paths", 1 << 15, 1 << 18), ("many-equal-paths", 1 << 22, 20)):
        yield "checkpoint", name, _repeated(rows, width)
    yield "checkpoint", "many-null-rows", _nulls(1 << 22)
    yield "bitmap", "millions-of-rows", _runs(1 << 12)
    yield "vector", "millions-of-rows", _stored(_runs(1 << 12), 1 << 28)
    yield "vector", "more-rows-than-the-log-says", _stored(_runs(1 << 10), 5)
    for target in ("commit", "hint", "manifest", "schema", "state", "vector"):
        yield target, "deep", b'{"a":' * 5_000 + b"1" + b"}" * 5_000
        yield target, "huge-number", b'{"version":' + b"9" * 6_000 + b"}"
    yield "sql", "many-comments", b"/**/" * 5_000 + b"x"
    yield "sql", "open-comments", b"ALTER TABLE t " + b"DROP /*" * 2_000
    yield "sql", "huge-version", b"RESTORE t TO VERSION AS OF " + b"9" * 5_000
    yield "condition", "huge-number", b"long = " + b"9" * 5_000
    yield "condition", "deep", b"(" * 5_000 + b"long = 1" + b")" * 5_000
    yield "partition", "zone-as-module", b"a." * 400
    yield "commit", "outside", _adds("../u/x", "%2e%2e/u/x", "s3a://lake/u/x", "file:///etc/passwd", "/etc/passwd")
    yield "table", "outside", _adds("s3a://lake/t/../u/x", "s3a://lake/u/x", "s3://other/t/x", "file:///etc/passwd")


def _adds(*paths: str) -> bytes:
    lines = []
    for path in paths:
        add = {"path": path, "partitionValues": {"p": "a"}, "size": 1, "modificationTime": 1, "dataChange": True}
        gone = {"path": path + "y", "dataChange": True, "deletionTimestamp": 1}
        lines += [json.dumps({"add": add}), json.dumps({"remove": gone})]
    return "\n".join(lines).encode()


def _actions(path: pa.Array) -> pa.Table:
    count = len(path)
    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    empty = pa.array([[]], pa.map_(pa.string(), pa.string())).take(pa.repeat(pa.scalar(0, pa.int32()), count))
    add = pa.StructArray.from_arrays([path, empty, ones, ones], ["path", "partitionValues", "size", "modificationTime"])
    return pa.table({"add": add})


def _head() -> pa.Table:
    from tests.fuzz.seeds import table_objects

    name = "_delta_log/00000000000000000002.checkpoint.parquet"
    return pq.read_table(io.BytesIO(table_objects()[name])).select(["metaData", "protocol"])


def _written(parts: Iterator[pa.Table]) -> bytes:
    out, writer = io.BytesIO(), None
    head = _head()
    for part in parts:
        columns = {"add": part.column("add")}
        for name in head.column_names:
            columns[name] = pa.nulls(part.num_rows, head.schema.field(name).type)
        table = pa.table(columns)
        if writer is None:
            writer = pq.ParquetWriter(out, table.schema, compression="zstd")
            first = {"add": pa.nulls(head.num_rows, table.schema.field("add").type)}
            writer.write_table(pa.table({**first, **{name: head.column(name) for name in head.column_names}}))
        writer.write_table(table, row_group_size=1 << 22)
    assert writer is not None
    writer.close()
    return out.getvalue()


def _repeated(rows: int, width: int) -> bytes:
    """So many adds of one path, which is written once."""
    step = min(rows, (1 << 30) // width)
    one = pa.array(["x" * width])

    def parts() -> Iterator[pa.Table]:
        for _ in range(rows // step):
            yield _actions(one.take(pa.repeat(pa.scalar(0, pa.int32()), step)))

    return _written(parts())


def _nulls(rows: int) -> bytes:
    """So many rows with nothing in them."""
    kind = _actions(pa.array(["x"])).schema.field("add").type

    def parts() -> Iterator[pa.Table]:
        for _ in range(rows >> 22):
            yield pa.table({"add": pa.nulls(1 << 22, kind)})

    return _written(parts())


def _runs(containers: int) -> bytes:
    """Containers of 65,536 positions, ten bytes each; in buckets of 65,536 containers."""
    head = struct.pack("<I", 12347 | (containers - 1) << 16) + b"\xff" * ((containers + 7) // 8)
    keys = b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(containers))
    body = struct.pack("<HHH", 1, 0, 0xFFFF) * containers
    offsets = bytes(4 * containers) if containers >= 4 else b""
    return struct.pack("<iqI", 1681511377, 1, 0) + head + keys + offsets + body


def _stored(bitmap: bytes, cardinality: int) -> bytes:
    import zlib

    descriptor = {
        "storageType": "u", "pathOrInlineDv": "", "sizeInBytes": len(bitmap), "cardinality": cardinality, "offset": 1,
    }  # fmt: skip
    from tests.fuzz.seeds import table_objects

    for line in table_objects()["_delta_log/00000000000000000001.json"].splitlines():
        vector = json.loads(line).get("add", {}).get("deletionVector")
        descriptor["pathOrInlineDv"] = vector["pathOrInlineDv"] if vector else descriptor["pathOrInlineDv"]
    stored = struct.pack(">i", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))
    return json.dumps(descriptor).encode() + b"\n\x01" + stored


def main() -> None:
    """Write all of them."""
    for target, name, data in bombs():
        folder = KEPT / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        print(f"{target}/{name}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
