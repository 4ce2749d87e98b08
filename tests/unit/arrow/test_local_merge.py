"""MERGE and UPDATE through ``pydelta.open``: no JVM. The rows are those that a model in plain Python says."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydelta.api.python.local import LocalTable
from pydelta.commands.change.merge import ClauseAction, ClauseOn
from pydelta.engines.arrow.changes import FilePlace
from pydelta.engines.arrow.engine import ArrowEngine
from pydelta.engines.arrow.expressions import SOURCE, NotHere, both, compare, concat, opposite
from pydelta.engines.arrow.merge.local_merge import LocalMerging
from pydelta.engines.arrow.merge.merge_rule import MOST_LISTED, ArrowClause, MergeRule, ranges
from pydelta.engines.arrow.merge.merge_source import HeldSource
from pydelta.engines.arrow.merge.merging import ArrowMerge
from pydelta.engines.arrow.merge.spilled_merge import SpilledSource, hashes_of
from pydelta.errors import (
    BindError,
    ConcurrentAppendException,
    InvalidArgumentError,
    ParseError,
    RowsDoNotAddUpError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from pydelta.log import DeltaLog
from pydelta.predicate import Column, Compare, In, Literal
from pydelta.protocol.actions import Protocol
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.types import DecimalType
from pydelta.settings import Settings
from pydelta.storage.memory import MemoryStore
from pydelta.testing.parquet_rows import parquet_rows
from pydelta.testing.tables import TableBuilder

_NAMES = itertools.count()
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "changeDataFeed", "rowTracking", "domainMetadata", "checkConstraints"),
)
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


SPILLING = Settings.resolve({"spark.pydelta.local.sourceMaxBytes": "0"}, env={})
"""Settings with which every source is paired through temporary files."""


def table(files, *, columns=None, partition_columns=("p",), properties=None, spilled=False):
    store = MemoryStore(f"memory://localmerge{next(_NAMES)}/t")
    built = TableBuilder(
        store,
        columns=columns or {"k": "long", "s": "string", "v": "double", "p": "string"},
        partition_columns=partition_columns,
        properties=properties,
        protocol=FEATURES,
    )
    built.commit(*[built.file(data, partition) for data, partition in files])
    return LocalTable(DeltaLog(store, settings=SPILLING if spilled else None)), store


@contextmanager
def small_parts(collide):
    """Make the parts of a spilled source so small that there are many; ``collide``: and few different hashes."""

    def few(keys):
        hashes, of = hashes_of(keys)
        return hashes >> np.uint64(62) << np.uint64(62), of

    with ExitStack() as stack:
        for name in ("spill.BLOCK_ROWS", "spilled_merge._PASS_BITS", "spilled_merge._GROUP_BYTES"):
            stack.enter_context(patch(f"pydelta.engines.arrow.merge.{name}", 2))
        if collide:
            stack.enter_context(patch("pydelta.engines.arrow.merge.spilled_merge.hashes_of", few))
        yield


def rows(keys, values, **others):
    return pa.table({
        "k": pa.array(keys, pa.int64()),
        "s": pa.array(values, pa.string()),
        "v": pa.array([len(value or "") / 2 for value in values], pa.float64()),
        **others,
    })  # fmt: skip


def told(store):
    return DeltaLog(store).history(1)[0].commit_info.fields["operationMetrics"]


def now(store):
    return parquet_rows(DeltaLog(store).update(), store)


@pytest.mark.parametrize("properties", [None, VECTORS, FEED, VECTORS | FEED], ids=str)
def test_rows_are_updated_and_inserted_and_the_counts_add_up(properties):
    merged, store = table(
        [(rows([1, 2, None], ["a", "b", "c"]), {"p": "x"}), (rows([3], ["d"]), {"p": None})], properties=properties
    )
    source = pl.DataFrame({"K": [2, 3, 9, None], "S": ["B", None, "new", "null"]})
    result = merged.merge(source, on="k")
    assert (result.num_source_rows, result.num_updated_rows, result.num_inserted_rows) == (4, 2, 2)
    assert now(store) == Counter({
        (1, "a", 0.5, "x"): 1, (2, "B", 0.5, "x"): 1, (None, "c", 0.5, "x"): 1, (3, None, 0.5, None): 1,
        (9, "new", None, None): 1, (None, "null", None, None): 1,
    })  # fmt: skip
    metrics = told(store)
    assert (metrics["scannedBy"], metrics["rewrittenBy"]) == ("arrow", "arrow")
    assert metrics["numTargetRowsCopied"] == ("0" if properties and VECTORS.items() <= properties.items() else "2")
    if properties and "delta.enableChangeDataFeed" in properties:
        kinds = Counter()
        for action in DeltaLog(store).actions(1):
            if action.kind == "cdc":
                feed = pq.read_table(pa.BufferReader(store.read(decode_log_path(action.path).text))).to_pylist()
                kinds.update((row["k"], row["s"], row["_change_type"]) for row in feed)
        assert kinds == Counter({
            (2, "b", "update_preimage"): 1, (2, "B", "update_postimage"): 1, (3, "d", "update_preimage"): 1,
            (3, None, "update_postimage"): 1, (9, "new", "insert"): 1, (None, "null", "insert"): 1,
        })  # fmt: skip


@pytest.mark.parametrize("properties", [None, VECTORS, FEED], ids=str)
@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    target=st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 8)), st.sampled_from(["x", None])), max_size=12),
    source=st.lists(st.one_of(st.none(), st.integers(0, 10)), max_size=8, unique=True),
    words=st.sampled_from(
        [w for w in itertools.product(("update", "delete", None), ("insert", None), ("delete", None)) if any(w)]
    ),
    twice=st.booleans(),
    moves=st.booleans(),
    way=st.sampled_from(["held", "held in parts", "spilled", "spilled with equal hashes"]),
)
def test_any_merge_leaves_what_a_model_says(properties, target, source, words, twice, moves, way):
    spilled = way.startswith("spilled")

    def part_of(key):
        return None if not moves or key is None or key % 3 == 0 else ("x", "y/é")[key % 2]

    matched, not_matched, alone = words
    files = [(part, [key for key, of in target if of == part]) for part in ("x", None)]
    merged, store = table(
        [(rows(keys, [f"t{key}" for key in keys]), {"p": part}) for part, keys in files if keys],
        properties=properties,
        spilled=spilled,
    )
    for _ in range(1 + twice):  # the second time over what the first one left: vectors, new files
        before = [row for row, count in now(store).items() for _ in range(count)]
        given = pa.table({"k": pa.array(source, pa.int64()), "s": pa.array([f"s{key}" for key in source], pa.string())})
        if moves:
            given = given.append_column("p", pa.array([part_of(key) for key in source], pa.string()))
        with ExitStack() as stack:
            if way == "held in parts":
                stack.enter_context(patch("pydelta.engines.arrow.merge.merge_source._CHUNK_BYTES", 1))
            if spilled:
                stack.enter_context(small_parts(way.endswith("hashes")))
            merged.merge(given, on="k", matched=matched, not_matched=not_matched, not_matched_by_source=alone)
        expected = Counter()
        keys = {key for key in source if key is not None}
        for k, s, v, p in before:
            if k in keys:
                if matched != "delete":
                    expected[(k, f"s{k}", v, part_of(k) if moves else p) if matched == "update" else (k, s, v, p)] += 1
            elif alone is None:
                expected[k, s, v, p] += 1
        there = {row[0] for row in before} - {None}
        if not_matched:
            for key in source:
                if key not in there:
                    expected[key, f"s{key}", None, part_of(key)] += 1
        assert now(store) == expected


def test_keys_of_several_columns_and_types_match_as_equals_does():
    columns = {"d": "date", "t": "timestamp", "m": "decimal(10,2)", "b": "binary", "n": "long"}
    import datetime as dt
    from decimal import Decimal

    schema = pa.schema(
        [("d", pa.date32()), ("t", pa.timestamp("us", "UTC")), ("m", pa.decimal128(10, 2)), ("b", pa.binary()),
         ("n", pa.int64())]
    )  # fmt: skip
    at = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
    first = pa.table(
        [[dt.date(2024, 1, 1)] * 2, [at] * 2, [Decimal("1.10"), None], [b"\xff"] * 2, [1, 2]], schema=schema
    )
    merged, store = table([(first, None)], columns=columns, partition_columns=())
    other = first.set_column(4, "n", pa.array([10, 20], pa.int64()))
    result = merged.merge(other, on=["d", "t", "m", "b"])
    assert (result.num_updated_rows, result.num_inserted_rows) == (1, 1)
    assert sorted(row[4] for row in now(store).elements()) == [2, 10, 20]


def test_two_rows_for_one_are_refused_and_nothing_is_left():
    merged, store = table([(rows([1], ["a"]), {"p": "x"})])
    with pytest.raises(InvalidArgumentError, match="match the same row"):
        merged.merge(rows([1, 1], ["b", "c"]), on="k")
    assert merged.version == 0
    assert len([item for item in store.list_all() if item.path.endswith(".parquet")]) == 1
    assert merged.merge(rows([1, 1], ["b", "c"]), on="k", matched="delete", not_matched=None).num_deleted_rows == 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"on": "nothing"}, BindError, "nothing"),
        ({"on": []}, InvalidArgumentError, "to match by"),
        ({"on": "p"}, InvalidArgumentError, "no column p"),
        ({"on": "k", "matched": "insert"}, InvalidArgumentError, "'update' or 'delete'"),
        ({"on": "k", "matched": None, "not_matched": None}, InvalidArgumentError, "no clauses"),
        ({"on": "v"}, UnsupportedFeatureError, "equality of keys"),
        ({"on": ["k", "s", "v"]}, InvalidArgumentError, "nothing to update"),
    ],
)
def test_what_cannot_be_merged_says_so(arguments, error, text):
    merged, _ = table([(rows([1], ["a"]), {"p": "x"})])
    with pytest.raises(error, match=text):
        merged.merge(rows([1], ["b"]), **arguments)
    assert merged.version == 0


def test_a_table_with_rules_is_left_to_spark():
    merged, _ = table([(rows([1], ["a"]), {"p": "x"})], properties={"delta.constraints.c": "v > 0"})
    with pytest.raises(UnsupportedFeatureError, match="CHECK constraints"):
        merged.merge(rows([1], ["b"]), on="k")
    with pytest.raises(UnsupportedFeatureError, match="CHECK constraints"):
        merged.update(set={"v": "1"})
    with pytest.raises(SchemaMismatchError, match="lacks"):
        merged.merge(pa.table({"k": [1], "other": [1]}), on="k")


def test_values_are_set_from_constants_and_columns():
    merged, store = table([(rows([1, 2, 3], ["a", "b", "c"]), {"p": "x"})], properties=VECTORS | FEED)
    result = merged.update("k >= 2", {"s": "'new'", "V": "2.5"})
    assert result.num_updated_rows == 2
    assert now(store) == Counter({(1, "a", 0.5, "x"): 1, (2, "new", 2.5, "x"): 1, (3, "new", 2.5, "x"): 1})
    merged.update("k = 1", {"s": "NULL", "v": "NULL", "p": "'y'"})
    assert now(store)[1, None, None, "y"] == 1
    assert merged.update("k = 7", {"s": "'x'"}).version is None
    assert told(store)["scannedBy"] == "arrow"


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({}, InvalidArgumentError, "sets nothing"),
        ({"other": "1"}, BindError, "no column 'other'"),
        ({"k": "v"}, UnsupportedFeatureError, "cast"),
        ({"k": "99999999999999999999"}, UnsupportedFeatureError, "beyond long"),
        ({"k": "1 OR k = 2"}, UnsupportedFeatureError, "not a constant or a column"),
        ({"k": "upper(s)"}, ParseError, "."),
        ({"k": "1", "K": "2"}, Exception, "twice"),
    ],
)
def test_a_value_that_cannot_be_set_says_so(values, error, text):
    merged, _ = table([(rows([1], ["a"]), {"p": "x"})])
    with pytest.raises(error, match=text):
        merged.update(set=values)
    assert merged.version == 0


@pytest.mark.parametrize("kind", [HeldSource, SpilledSource])
@pytest.mark.parametrize("properties", [None, VECTORS, FEED], ids=str)
def test_a_merge_that_forgets_a_row_or_doubles_one_leaves_no_trace(monkeypatch, properties, kind):
    merged, store = table(
        [(rows(range(20), ["a"] * 20), {"p": "x"})], properties=properties, spilled=kind is SpilledSource
    )
    unmatched = kind.unmatched
    before, write = sorted(item.path for item in store.list_all()), ArrowMerge.write

    def forgetful(self, *args, **options):
        [item] = self._found.values()
        self._found[0] = type(item)(item.positions[1:], item.clauses[1:], item.sources[1:])
        return write(self, *args, **options)

    def doubling(self):
        for part in unmatched(self):
            yield from (part, part.slice(0, 1))

    for owner, name, faulty in ((ArrowMerge, "write", forgetful), (kind, "unmatched", doubling)):
        monkeypatch.setattr(ArrowMerge, "write", write)
        monkeypatch.setattr(owner, name, faulty)
        with pytest.raises(RowsDoNotAddUpError):
            merged.merge(rows(range(10, 30), ["b"] * 20), on="k")
        assert sorted(item.path for item in store.list_all()) == before
    monkeypatch.setattr(kind, "unmatched", unmatched)
    assert merged.merge(rows(range(10, 30), ["b"] * 20), on="k").num_updated_rows == 10


@pytest.mark.parametrize(
    ("keys", "other", "stands"),
    [
        ([1, 1000], [2, 3], True),
        ([1, 1000], [2, 1001], False),  # the file's bounds hold a key, whatever its rows are
        ([1, 1000], [1000], False),
        (range(0, 2 * MOST_LISTED, 2), [1], True),
        (range(0, 2 * MOST_LISTED, 2), [2 * MOST_LISTED - 2], False),
        (range(0, 2 * MOST_LISTED + 2, 2), [1], False),  # too many to be listed
        (range(0, 2 * MOST_LISTED + 2, 2), [2 * MOST_LISTED + 1], True),
    ],
)
def test_what_is_appended_between_few_keys_is_no_conflict(monkeypatch, keys, other, stands):
    _, store = table([(rows([1], ["a"]), {"p": "x"})])
    merged = LocalTable(DeltaLog(store, settings=Settings(change_max_retries=0)))
    source, find = rows(keys, ["b"] * len(keys), p=["x"] * len(keys)), LocalMerging.find

    def beside(self, files):
        LocalTable(DeltaLog(store)).append(rows(other, ["c"] * len(other), p=["x"] * len(other)))
        return find(self, files)

    monkeypatch.setattr(LocalMerging, "find", beside)
    if stands:
        merged.merge(source, on="k")
    else:
        with pytest.raises(ConcurrentAppendException):
            merged.merge(source, on="k")
    after = Counter(row[:2] for row in now(store).elements())
    assert after[other[0], "c"] == 1
    assert after[keys[0], "b"] == int(stands)


@pytest.mark.parametrize(("digits", "kinds"), [(10, [In]), (38, [Compare, Compare])])
def test_few_keys_of_many_digits_are_a_range(digits, kinds):
    """Statistics compare no such decimal as it is: a list of them would narrow nothing."""
    kind = DecimalType(38, 0)
    rule = MergeRule.of(compare("=", Column(("k",), kind), Column((SOURCE, "0"), kind)), [])
    values = [Decimal(f"{n}".rjust(digits, "1")) for n in (1, 3)]
    source = pa.table({"k": pa.array(values, pa.decimal128(38, 0))})
    assert [type(item) for item in ranges(rule, [source], ())] == kinds
    assert [type(item) for item in ranges(rule, [source], ("k",))] == [In]


def test_rows_are_filtered_by_what_clauses_and_the_condition_say():
    """Over a rule that ``LocalTable.merge`` does not make: conditions of clauses, and one beside the key."""
    _, store = table([(rows([1, 2, 3, 4], ["a", "b", "c", "d"]), {"p": "x"})], properties=FEED)
    log = DeltaLog(store)
    snapshot, engine = log.update(), ArrowEngine(log)
    source = rows([1, 2, 3, 9, 8], ["A", "B", "C", "I", "J"])
    k, s, v = (Column((SOURCE, str(n)), snapshot.schema.fields[n].data_type) for n in range(3))
    long, text = snapshot.schema.fields[0].data_type, snapshot.schema.fields[1].data_type
    rule = MergeRule.of(
        both(compare("=", Column(("k",), long), k), opposite(compare("=", k, Literal(3, long)))),
        [
            ArrowClause(on=ClauseOn.MATCHED, action=ClauseAction.DELETE,
                        condition=compare("=", Column(("s",), text), Literal("a", text))),
            ArrowClause(on=ClauseOn.MATCHED, action=ClauseAction.UPDATE, values={"s": concat(Column(("s",), text), s)}),
            ArrowClause(on=ClauseOn.NOT_MATCHED, action=ClauseAction.INSERT,
                        condition=compare("=", k, Literal(9, long)), values={"k": k, "v": v}),
            ArrowClause(on=ClauseOn.NOT_MATCHED_BY_SOURCE, action=ClauseAction.DELETE,
                        condition=compare(">", Column(("k",), long), Literal(3, long))),
        ],
    )  # fmt: skip
    merge = ArrowMerge(
        snapshot,
        rule,
        HeldSource(source, rule),
        task=engine.write_task(snapshot),
        place=FilePlace(store=log.store, options=log.options),
    )
    files = snapshot.files.core
    limited = ArrowMerge(
        snapshot,
        rule,
        HeldSource(source, rule),
        task=engine.write_task(snapshot),
        place=FilePlace(store=log.store, options=log.options),
        most_changes=2,
    )
    with pytest.raises(NotHere, match="more than 2 rows that change"):
        limited.find(files)
    matches = merge.find(files)
    assert (matches.updated, matches.deleted, matches.alone_deleted, matches.paired) == (1, 2, 1, 2)
    assert matches.positions[0].tolist() == [0, 1, 3]
    written, passed = merge.write(files, [0], copy_others=True)
    assert (passed.copied, passed.updated, passed.inserted, passed.source, passed.paired) == (1, 1, 1, 5, 2)
    found = Counter()
    for add in written.adds:
        for row in pq.read_table(pa.BufferReader(store.read(decode_log_path(add.path).text))).to_pylist():
            found[row["k"], row["s"], add.partition_values["p"]] += 1
    assert found == Counter({(2, "bB", "x"): 1, (3, "c", "x"): 1, (9, None, None): 1})
    assert written.num_changes == 2 + 2 + 1
