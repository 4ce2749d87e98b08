"""Give pytest the classes of ``dbt-tests-adapter`` for what dbt stores, over Delta tables.

The server is at the port in ``PYDELTA_THRIFT_PORT``.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import yaml
from dbt.tests import adapter as package
from dbt.tests.adapter.basic import expected_catalog as catalogs
from dbt.tests.adapter.basic import files
from dbt.tests.adapter.basic.test_incremental import BaseIncremental
from dbt.tests.util import AnyInteger, write_file

from tests.suites.programs import dbt_constraints, dbt_seeds
from tests.suites.programs.dbt_constraints import fixed

DELTA = {"+file_format": "delta"}
FORMATS = {
    "models": {**DELTA, "+incremental_strategy": "merge"},
    "seeds": DELTA,
    "snapshots": DELTA,
    "data_tests": DELTA,
}
"""What the adapter's users write into their project for Delta; it goes where a test's own project says nothing."""
MICROBATCH = """\
{{ config(materialized='incremental', incremental_strategy='microbatch', partition_by=['day'], event_time='event_time',
   batch_size='day', begin=modules.datetime.datetime(2020, 1, 1, 0, 0, 0)) }}
SELECT *, to_date(event_time) AS day FROM {{ ref('input_model') }}
"""
BY_STRATEGY = """\
{{ config(materialized='incremental', incremental_strategy='STRATEGY', partition_by=['id']) }}
SELECT name, some_date, id FROM {{ source('raw', 'seed') }}
{% if is_incremental() %}WHERE id > (SELECT max(id) FROM {{ this }}){% endif %}
"""


@pytest.fixture(scope="class")
def dbt_profile_target() -> dict[str, Any]:
    """Say where the server is."""
    return {
        "type": "spark",
        "method": "thrift",
        "host": "127.0.0.1",
        "port": int(os.environ["PYDELTA_THRIFT_PORT"]),
        "user": "dbt",
        "threads": 2,
        "connect_retries": 0,
        "poll_interval": 1,
    }


@pytest.fixture(scope="class")
def dbt_project_yml(project_root: Any, project_config_update: Any) -> dict[str, Any]:
    """Write the project's file as the package does, with Delta as the format of each table."""
    project: dict[str, Any] = {
        "name": "test",
        "profile": "test",
        "flags": {"send_anonymous_usage_stats": False},
    }
    update = project_config_update or {}
    project |= yaml.safe_load(update) if isinstance(update, str) else update
    for kind, settings in FORMATS.items():
        project[kind] = {**settings, **project.get(kind, {})}
    write_file(yaml.safe_dump(project), project_root, "dbt_project.yml")
    return project


AREAS = ("basic", "constraints", "incremental", "persist_docs", "simple_seed", "simple_snapshot")
"""Folders of the package about what dbt stores in tables; its commands and functions of SQL are others."""


def _classes() -> dict[str, type]:
    """Find the classes of the areas that have tests and that no class of the package extends."""
    found = []
    folder = Path(package.__path__[0])
    paths = [path for area in AREAS for path in (folder / area).rglob("*.py")]
    for path in sorted(paths):  # most folders are not packages
        name = ".".join((package.__name__, *path.relative_to(folder).with_suffix("").parts))
        loaded = importlib.import_module(name.removesuffix(".__init__"))
        found += [item for _, item in inspect.getmembers(loaded, inspect.isclass) if item.__module__ == name]
    extended = {base for item in found for base in item.__mro__[1:] if base.__name__ not in dbt_seeds.ALSO}
    return {
        f"Test_{item.__module__.removeprefix(package.__name__ + '.').replace('.', '_')}_{item.__name__}": item
        for item in found
        if item not in extended and any(name.startswith("test") for name in dir(item))
    }


def _catalog(make: Callable[..., Any], **kinds: str) -> Any:
    """Expect Spark's names of types, any owner and statistics, and any numbers of columns: dbt-spark begins with 0."""

    def expected_catalog(self: Any, project: Any) -> Any:
        names = {"text_type": "string", "time_type": "timestamp", "view_type": "view", "table_type": "table"}
        found = make(project, role=ANY, id_type="long", model_stats=ANY, **names, **kinds)
        for table in (*found["nodes"].values(), *found["sources"].values()):
            for column in table["columns"].values():
                column["index"] = AnyInteger()
        return found

    return pytest.fixture(scope="class")(expected_catalog)


def _predicates(name: str) -> dict[str, Any]:
    models = {name: ["dbt_internal_dest.id != 2"], "+incremental_strategy": "merge"}
    return {"project_config_update": fixed({"models": models})}


CHANGED: dict[str, dict[str, Any]] = {
    **dbt_constraints.CHANGED,
    **dbt_seeds.CHANGED,
    "TestDocsGenerate": {"expected_catalog": _catalog(catalogs.base_expected_catalog)},
    "TestDocsGenReferences": {"expected_catalog": _catalog(catalogs.expected_references_catalog, bigint_type="long")},
    # dbt-spark writes batches as partitions, so that a model has to name one.
    "BaseMicrobatch": {"microbatch_model_sql": fixed(MICROBATCH)},
    # Of a unique key's strategies dbt-spark has merge alone.
    "TestIncrementalPredicatesDeleteInsert": _predicates("+incremental_predicates"),
    "TestPredicatesDeleteInsert": _predicates("+predicates"),
}
"""Fixtures that an adapter is meant to replace, by the name of the class."""

dbt_constraints.speak_spark()
dbt_seeds.speak_spark()
for _strategy in ("append", "insert_overwrite"):  # merge is the default above, and microbatch has a class
    _models = {"incremental.sql": BY_STRATEGY.replace("STRATEGY", _strategy), "schema.yml": files.schema_base_yml}
    globals()[f"Test_by_{_strategy}"] = type(
        f"Test_by_{_strategy}", (BaseIncremental,), {"__module__": __name__, "models": fixed(_models)}
    )

for _name, _class in _classes().items():
    globals()[_name] = type(_name, (_class,), {"__module__": __name__, **CHANGED.get(_class.__name__, {})})
