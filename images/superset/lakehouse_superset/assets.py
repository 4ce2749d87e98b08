"""Describe datasets, charts and dashboards in a few words, and write them in the format that Superset imports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid5

VERSION: Final = "1.0.0"
_NAMES: Final = UUID("5b2d8a0e-3f0c-4f0e-9a57-0c1d6d0d7a10")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A table of Trino's catalog ``delta``.

    Args:
        schema: The table's schema.
        table: Its name.
        columns: Trino's type of each column.
        metrics: SQL of each metric, by its name.
        time: The column of times that charts filter by, if there is one.
    """

    schema: str
    table: str
    columns: Mapping[str, str]
    metrics: Mapping[str, str]
    time: str | None = None


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart.

    Args:
        name: Its title.
        kind: Superset's name of its kind.
        dataset: What it asks.
        options: What its kind takes.
        width: In columns; a row of a dashboard has 12.
        height: In units of 8 pixels.
    """

    name: str
    kind: str
    dataset: Dataset
    options: Mapping[str, Any]
    width: int = 4
    height: int = 40


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A dashboard.

    Args:
        slug: Its name in addresses.
        title: Its title.
        rows: Its charts, row by row.
    """

    slug: str
    title: str
    rows: Sequence[Sequence[Chart]]

    @property
    def charts(self) -> list[Chart]:
        """All its charts, in their order."""
        return [chart for row in self.rows for chart in row]

    @property
    def uuid(self) -> UUID:
        """The identity of the dashboard, which stays when its title changes."""
        return _identity("dashboard", self.slug)


def bundle(dashboard: Dashboard, database: UUID, database_name: str) -> dict[str, str]:
    """Write a dashboard with all that it needs.

    Args:
        dashboard: The dashboard.
        database: The database of its datasets, which Superset has already.
        database_name: Its name there.

    Returns:
        Texts of files, by their names in an archive of Superset.
    """
    datasets = {_dataset_id(chart.dataset): chart.dataset for chart in dashboard.charts}
    files: dict[str, Any] = {
        "metadata.yaml": {"version": VERSION, "type": "Dashboard"},
        "databases/database.yaml": {
            "database_name": database_name,
            "sqlalchemy_uri": "trino://trino:8080/delta",
            "uuid": str(database),
            "extra": {},
            "version": VERSION,
        },
        f"dashboards/{dashboard.slug}.yaml": _dashboard(dashboard),
    }
    for dataset in datasets.values():
        files[f"datasets/{dataset.schema}_{dataset.table}.yaml"] = _dataset(dataset, database)
    for number, chart in enumerate(dashboard.charts):
        files[f"charts/{dashboard.slug}_{number}.yaml"] = _chart(dashboard, chart)
    return {name: json.dumps(value) for name, value in files.items()}  # JSON is YAML.


def chart_id(dashboard: Dashboard, chart: Chart) -> UUID:
    """Return the identity of a chart, which stays when it is renamed in Superset."""
    return _identity("chart", f"{dashboard.slug}/{chart.name}")


def _identity(kind: str, name: str) -> UUID:
    return uuid5(_NAMES, f"{kind}:{name}")


def _dataset_id(dataset: Dataset) -> UUID:
    return _identity("dataset", f"{dataset.schema}.{dataset.table}")


def _dataset(dataset: Dataset, database: UUID) -> dict[str, Any]:
    return {
        "table_name": dataset.table,
        "catalog": "delta",
        "schema": dataset.schema,
        "main_dttm_col": dataset.time,
        "columns": [
            {"column_name": name, "type": kind, "is_dttm": name == dataset.time, "groupby": True, "filterable": True}
            for name, kind in dataset.columns.items()
        ],
        "metrics": [
            {"metric_name": name, "verbose_name": name, "expression": sql} for name, sql in dataset.metrics.items()
        ],
        "uuid": str(_dataset_id(dataset)),
        "database_uuid": str(database),
        "version": VERSION,
    }


def _chart(dashboard: Dashboard, chart: Chart) -> dict[str, Any]:
    return {
        "slice_name": chart.name,
        "viz_type": chart.kind,
        "params": {"viz_type": chart.kind, "adhoc_filters": [], **chart.options},
        "query_context": None,
        "uuid": str(chart_id(dashboard, chart)),
        "dataset_uuid": str(_dataset_id(chart.dataset)),
        "version": VERSION,
    }


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "dashboard_title": dashboard.title,
        "slug": dashboard.slug,
        "published": True,
        "css": "",
        "uuid": str(dashboard.uuid),
        "position": _position(dashboard),
        "metadata": {"color_scheme": "supersetColors", "cross_filters_enabled": True},
        "version": VERSION,
    }


def _position(dashboard: Dashboard) -> dict[str, Any]:
    """Place charts in rows, as Superset's editor does: a tree whose nodes name their children and all above them."""
    rows = [f"ROW-{number}" for number in range(len(dashboard.rows))]
    found: dict[str, Any] = {
        "DASHBOARD_VERSION_KEY": "v2",
        "ROOT_ID": {"type": "ROOT", "id": "ROOT_ID", "children": ["GRID_ID"]},
        "GRID_ID": {"type": "GRID", "id": "GRID_ID", "children": rows, "parents": ["ROOT_ID"]},
        "HEADER_ID": {"type": "HEADER", "id": "HEADER_ID", "meta": {"text": dashboard.title}},
    }
    for name, row in zip(rows, dashboard.rows, strict=True):
        charts = [f"CHART-{chart_id(dashboard, chart).hex[:12]}" for chart in row]
        found[name] = {
            "type": "ROW",
            "id": name,
            "children": charts,
            "parents": ["ROOT_ID", "GRID_ID"],
            "meta": {"background": "BACKGROUND_TRANSPARENT"},
        }
        for key, chart in zip(charts, row, strict=True):
            meta = {
                "uuid": str(chart_id(dashboard, chart)),
                "sliceName": chart.name,
                "chartId": 0,  # Superset puts its own number there.
                "width": chart.width,
                "height": chart.height,
            }
            above = ["ROOT_ID", "GRID_ID", name]
            found[key] = {"type": "CHART", "id": key, "children": [], "parents": above, "meta": meta}
    return found
