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


def _by(column: str, metric: str, *, stacked_by: str | None = None, sort_by_metric: bool = False) -> dict[str, object]:
    return {
        "x_axis": column,
        "metrics": [metric],
        "groupby": [stacked_by] if stacked_by else [],
        "stack": "Stack" if stacked_by else None,
        "x_axis_sort": metric if sort_by_metric else column,
        "x_axis_sort_asc": not sort_by_metric,
        "xAxisForceCategorical": True,
        "orientation": "vertical",
        "row_limit": 1000,
        "show_legend": bool(stacked_by),
        "y_axis_format": "SMART_NUMBER",
        "show_value": False,
        "rich_tooltip": True,
    }


def _number(metric: str, form: str = ",d") -> dict[str, object]:
    return {"metric": metric, "y_axis_format": form, "header_font_size": 0.4, "subheader_font_size": 0.15}


FLIGHTS = Dashboard(
    slug="flights",
    title="Flights from New York, 2013",
    rows=[
        [
            Chart(name="Flights", kind="big_number_total", dataset=_FLIGHTS, options=_number("flights"), height=22),
            Chart(name="Cancelled", kind="big_number_total", dataset=_FLIGHTS, options=_number("cancelled"), height=22),
            Chart(
                name="Minutes late on arrival",
                kind="big_number_total",
                dataset=_FLIGHTS,
                options=_number("minutes late", ".1f"),
                height=22,
            ),
        ],
        [
            Chart(
                name="Flights by month and airport",
                kind="echarts_timeseries_bar",
                dataset=_FLIGHTS,
                options=_by("month", "flights", stacked_by="origin"),
                width=6,
            ),
            Chart(
                name="Minutes late by carrier",
                kind="echarts_timeseries_bar",
                dataset=_FLIGHTS,
                options=_by("carrier", "minutes late", sort_by_metric=True),
                width=6,
            ),
        ],
        [
            Chart(
                name="Minutes late by hour",
                kind="echarts_timeseries_bar",
                dataset=_FLIGHTS,
                options=_by("hour", "minutes late"),
                width=6,
            ),
            Chart(
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
            ),
        ],
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
                Chart(
                    name=TOTAL, kind="big_number_total", dataset=orders, options=_number("orders"), width=3, height=30
                ),
                Chart(
                    name="Turnover",
                    kind="big_number_total",
                    dataset=orders,
                    options=_number("turnover", ",.2f"),
                    width=3,
                    height=30,
                ),
                Chart(
                    name="Turnover by customer",
                    kind="echarts_timeseries_bar",
                    dataset=orders,
                    options=_by("customer", "turnover"),
                    width=6,
                    height=30,
                ),
            ]
        ],
    )
