"""The modules in which a wrong line loses rows, and the tests of each."""

from __future__ import annotations

from typing import Final

AREAS: Final[dict[str, tuple[str, ...]]] = {
    "pydelta/commands/vacuum/needed.py": (
        "tests/unit/commands/vacuum/test_vacuum_needed.py",
        "tests/unit/commands/vacuum/test_vacuum_kept.py",
        "tests/unit/commands/vacuum/test_vacuum_plan.py",
    ),
    "catalog_sync/diff.py": ("tests/unit/sync/test_sync_plan.py",),
    "pydelta/predicate/masks.py": ("tests/unit/predicate",),
    "pydelta/predicate/lexing.py": ("tests/unit/predicate/test_texts.py", "tests/unit/predicate/test_kept_texts.py"),
    "pydelta/predicate/parsing.py": (
        "tests/unit/predicate/test_texts.py",
        "tests/unit/predicate/test_kept_texts.py",
        "tests/unit/predicate/test_skipping.py",
    ),
    "pydelta/predicate/projection.py": ("tests/unit/predicate/test_projection.py", "tests/unit/spark/test_filters.py"),
    "pydelta/predicate/binding.py": (
        "tests/unit/predicate/test_texts.py",
        "tests/unit/predicate/test_kept_texts.py",
        "tests/unit/predicate/test_skipping.py",
    ),
    "pydelta/engines/arrow/exact.py": (
        "tests/unit/arrow/test_exact_expressions.py",
        "tests/unit/spark/test_exact_translation.py",
        "tests/unit/predicate/test_texts.py",
        "tests/unit/predicate/test_kept_texts.py",
    ),
    "pydelta/engines/arrow/conform.py": ("tests/unit/arrow/test_conform.py",),
    "pydelta/engines/arrow/sources.py": (
        "tests/unit/arrow/test_sources.py",
        "tests/unit/arrow/test_local_verbs.py",
        "tests/unit/arrow/test_open.py",
        "tests/unit/arrow/test_rows_in.py",
    ),
    "pydelta/engines/arrow/scans.py": (
        "tests/unit/arrow/test_sources.py",
        "tests/unit/arrow/test_open.py",
        "tests/unit/arrow/test_rows_in.py",
    ),
    "pydelta/api/python/local.py": (
        "tests/unit/arrow/test_local_verbs.py",
        "tests/unit/arrow/test_open.py",
        "tests/unit/arrow/test_rows_in.py",
        "tests/unit/arrow/test_odd_tables.py",
        "tests/unit/arrow/test_local_merge.py",
        "tests/unit/arrow/test_local_maintenance.py",
        "tests/unit/arrow/test_local_doors.py",
    ),
    "pydelta/txn/conflicts.py": ("tests/unit/txn/test_conflicts.py",),
    "pydelta/txn/rows.py": ("tests/unit/txn/test_row_conflicts.py",),
    "pydelta/protocol/roaring.py": ("tests/unit/protocol/test_vectors.py",),
    "pydelta/protocol/vectors.py": ("tests/unit/protocol/test_vectors.py", "tests/unit/protocol/test_vector_ids.py"),
    "pydelta/protocol/partitions.py": (
        "tests/unit/protocol/test_partitions.py",
        "tests/unit/protocol/test_partition_texts.py",
    ),
    "pydelta/protocol/paths.py": ("tests/unit/protocol/test_paths.py",),
    "pydelta/commands/vacuum/paths.py": (
        "tests/unit/commands/vacuum/test_vacuum_paths.py",
        "tests/unit/commands/vacuum/test_vacuum_plan.py",
        "tests/unit/commands/vacuum/test_vacuum_kept.py",
    ),
    "pydelta/manifests/changes.py": ("tests/unit/manifests/test_manifest_contents.py",),
    "pydelta/manifests/contents.py": ("tests/unit/manifests/test_manifest_contents.py",),
}
"""With tests that start no Spark session."""

WITH_SESSION: Final[dict[str, tuple[str, ...]]] = {
    "pydelta/api/sql/relations.py": (
        "tests/integration/spark/sql/test_relations.py",
        "tests/integration/spark/catalog/test_views_by_name.py",
    ),
    "pydelta/api/sql/insert.py": ("tests/integration/spark/sql/test_inserts.py",),
}
"""With tests that need one, which are chosen for being fast."""
