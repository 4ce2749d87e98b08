"""Say in Spark's words what dbt's tests of seeds and snapshots send and expect: types, quotes, names of tables.

These tests run statements by themselves, some of them several in one text, which Spark takes one at a time.
"""

from __future__ import annotations

import re
from typing import Any

from dbt.tests.adapter import simple_seed
from dbt.tests.adapter.simple_seed import fixtures as seed_fixtures
from dbt.tests.adapter.simple_seed import seeds, test_seed
from dbt.tests.adapter.simple_snapshot import (
    common,
    new_record_check_mode,
    new_record_dbt_valid_to_current,
    new_record_timestamp_mode,
    test_ephemeral_snapshot_hard_deletes,
)
from dbt.tests.adapter.simple_snapshot import fixtures as snapshot_fixtures
from dbt.tests.fixtures.project import TestProjInfo
from dbt.tests.util import copy_file, run_sql_with_adapter, update_config_file

from tests.suites.programs.dbt_constraints import fixed

MODULES = (
    seed_fixtures,
    seeds,
    snapshot_fixtures,
    new_record_check_mode,
    new_record_dbt_valid_to_current,
    new_record_timestamp_mode,
    test_ephemeral_snapshot_hard_deletes,
)
WORDS = {
    r"\{+(target\.)?database\}+\.": "",  # dbt-spark names a table by schema and name
    r"(?i)\btimestamp without time zone\b": "timestamp",
    r"(?i)\btext\b": "string",
    r"\btype: integer\b": "type: bigint",  # as dbt-spark stores whole numbers of a seed
    r'"(\w+)"': r"`\1`",
    r" default 'dummy_value'": "",  # a Delta table takes no default with a new column
}
ALSO = ("BaseSnapshotNewRecordTimestampMode",)
"""Classes that run although another class of the package extends them, by other models."""


def speak_spark() -> None:
    """Replace what Spark has no words for in the texts of the tests, before their modules take these by name."""
    for module in MODULES:
        for name, value in list(vars(module).items()):
            if isinstance(value, (str, list)) and not name.startswith("__") and not name.lower().endswith("csv"):
                setattr(module, name, [_spoken(text) for text in value] if isinstance(value, list) else _spoken(value))
    from dbt.tests.adapter.simple_snapshot import test_various_configs

    test_various_configs.run_sql_with_adapter = _run_in_order
    test_various_configs.update_config_file = _change_snapshots
    TestProjInfo.run_sql = _run_each
    test_seed.copy_file = _copy_of_package
    common.add_column = _add_column


def _spoken(text: str) -> str:
    for pattern, word in WORDS.items():
        text = re.sub(pattern, word, text)
    return text


def _run_each(self: Any, sql: str, fetch: str | None = None) -> Any:
    """Run the statements of a text one by one, and return what the last one gives."""
    found = None
    for statement in re.split(r";\s*$", sql, flags=re.MULTILINE):
        if statement.strip():
            found = run_sql_with_adapter(self.adapter, statement, fetch=fetch)
    return found


def _run_in_order(adapter: Any, sql: str, fetch: str | None = None) -> Any:
    """Run a query whose rows the test takes by their place, so that a row's closed state comes before its open one."""
    return run_sql_with_adapter(adapter, f"{sql} order by id, test_valid_to", fetch)


def _change_snapshots(changes: dict[str, Any], *names: str) -> None:
    """Change a file of the project, which replaces what it says of snapshots: the format stays."""
    update_config_file({"snapshots": {"+file_format": "delta", **changes["snapshots"]}}, *names)


def _copy_of_package(folder: str, *names: Any) -> None:
    """Copy a file that the package has beside the test, which is not where this program is."""
    copy_file(simple_seed.__path__[0], *names)


_add_column_with_default = common.add_column


def _add_column(project: Any, table: str, column: str, definition: str) -> None:
    _add_column_with_default(project, table, column, definition.removesuffix(" default null"))


def _views_stay(self: Any, run_result: Any, project: Any, exists: bool) -> None:
    """Expect a view after its table was dropped, which PostgreSQL would drop with the table."""
    test_seed.SeedTestBase._check_relation_end_state(self, run_result, project, exists=True)


BIG = "seed_id\n" + "".join(f"row {number}\n" for number in range(20_000))
"""Of words: for each number that dbt-spark writes, it reads the column of all rows again."""
SEEDS = {"big_seed.csv": BIG, "seed_dots.csv": seeds.seed__with_dots_csv, "seed_unicode.csv": seeds.seed__unicode_csv}
"""Named without dots, which Spark does not allow in a table's name."""
CHANGED: dict[str, dict[str, Any]] = {
    "TestSeedSpecificFormats": {"seeds": fixed(SEEDS)},
    "TestBasicSeedTests": {"_check_relation_end_state": _views_stay},
    "TestSeedConfigFullRefreshOn": {"_check_relation_end_state": _views_stay},
    "TestSimpleSeedColumnOverride": {
        "seed_enabled_types": staticmethod(lambda: {"seed_id": "string", "birthday": "date"}),
        "seed_tricky_types": staticmethod(
            lambda: dict.fromkeys(("seed_id_str", "looks_like_a_bool", "looks_like_a_date"), "string")
        ),
    },
}
"""What an adapter is meant to replace, by the name of the class."""
