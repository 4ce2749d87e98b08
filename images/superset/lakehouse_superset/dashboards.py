"""The dashboards that the stack has ready: a year of flights, and the orders of the sample database."""

from __future__ import annotations

from lakehouse_superset.assets import Chart, Dashboard, Dataset

_FLIGHTS = Dataset(
    schema="lake",
    table="flights",
    columns={
        "month": "INTEGER",
        "day": "INTEGER",
        "hour": "INTEGER",
        "carrier": "VARCHAR",
        "origin": "VARCHAR",
        "dest": "VARCHAR",
        "dep_time": "INTEGER",
        "dep_delay": "INTEGER",
        "arr_delay": "INTEGER",
        "distance": "INTEGER",
    },
    metrics={
        "flights": "count(*)",
        "cancelled": "count_if(dep_time IS NULL)",
        "minutes late": "avg(arr_delay)",
        "miles": "sum(distance)",
    },
)


def _number(name: str, dataset: Dataset, metric: str, form: str = ",d", *, width: int = 4, height: int = 22) -> Chart:
    """Describe a chart that shows one number, in the format of d3."""
    options = {"metric": metric, "y_axis_format": form, "header_font_size": 0.4, "subheader_font_size": 0.15}
    return Chart(name=name, kind="big_number_total", dataset=dataset, options=options, width=width, height=height)


def _bars(name: str, dataset: Dataset, column: str, metric: str, *, height: int = 40, **others: object) -> Chart:
    """Describe a chart that shows a metric for each value of a column, in the order of the values."""
    options = {
        "x_axis": column,
        "metrics": [metric],
        "groupby": [],
        "stack": None,
        "x_axis_sort": column,
        "x_axis_sort_asc": True,
        "xAxisForceCategorical": True,
        "orientation": "vertical",
        "row_limit": 1000,
        "show_legend": False,
        "y_axis_format": "SMART_NUMBER",
        "show_value": False,
        "rich_tooltip": True,
        **others,
    }
    return Chart(name=name, kind="echarts_timeseries_bar", dataset=dataset, options=options, width=6, height=height)


_OF_AIRPORTS = {"groupby": ["origin"], "stack": "Stack", "show_legend": True}
_WORST_FIRST = {"x_axis_sort": "minutes late", "x_axis_sort_asc": False}
_DESTINATIONS = Chart(
    name="Where to",
    kind="table",
    dataset=_FLIGHTS,
    options={
        "query_mode": "aggregate",
        "groupby": ["dest"],
        "metrics": ["flights", "cancelled", "minutes late", "miles"],
        "order_desc": True,
        "timeseries_limit_metric": "flights",
        "row_limit": 200,
        "table_timestamp_format": "smart_date",
        "column_config": {"minutes late": {"d3NumberFormat": ".1f"}},
    },
    width=6,
)
FLIGHTS = Dashboard(
    slug="flights",
    title="Flights from New York, 2013",
    rows=[
        [
            _number("Flights", _FLIGHTS, "flights"),
            _number("Cancelled", _FLIGHTS, "cancelled"),
            _number("Minutes late on arrival", _FLIGHTS, "minutes late", ".1f"),
        ],
        [
            _bars("Flights by month and airport", _FLIGHTS, "month", "flights", **_OF_AIRPORTS),
            _bars("Minutes late by carrier", _FLIGHTS, "carrier", "minutes late", **_WORST_FIRST),
        ],
        [_bars("Minutes late by hour", _FLIGHTS, "hour", "minutes late"), _DESTINATIONS],
    ],
)
TOTAL = "Orders"
"""The chart that ``make verify`` follows: how many orders there are."""


def shop(schema: str) -> Dashboard:
    """Describe the dashboard of the sample database of the profile ``cdc``, whose changes are tables in a schema."""
    orders = Dataset(
        schema=schema,
        table="orders",
        columns={
            "id": "BIGINT",
            "customer": "BIGINT",
            "amount": "DECIMAL(12, 2)",
            "note": "VARCHAR",
            "placed_at": "TIMESTAMP(6) WITH TIME ZONE",
        },
        metrics={"orders": "count(*)", "turnover": "sum(amount)"},
        time="placed_at",
    )
    return Dashboard(
        slug="shop",
        title="Orders of the shop",
        rows=[
            [
                _number(TOTAL, orders, "orders", width=3, height=30),
                _number("Turnover", orders, "turnover", ",.2f", width=3, height=30),
                _bars("Turnover by customer", orders, "customer", "turnover", height=30),
            ]
        ],
    )
