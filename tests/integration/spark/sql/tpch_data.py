"""The eight tables of TPC-H with about two thousand line items: the same rows each time, something for every query."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import polars as pl

DDL: dict[str, str] = {
    "region": "r_regionkey int, r_name string, r_comment string",
    "nation": "n_nationkey int, n_name string, n_regionkey int, n_comment string",
    "supplier": "s_suppkey bigint, s_name string, s_address string, s_nationkey int, s_phone string, "
    "s_acctbal decimal(15,2), s_comment string",
    "part": "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, "
    "p_container string, p_retailprice decimal(15,2), p_comment string",
    "partsupp": "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(15,2), ps_comment string",
    "customer": "c_custkey bigint, c_name string, c_address string, c_nationkey int, c_phone string, "
    "c_acctbal decimal(15,2), c_mktsegment string, c_comment string",
    "orders": "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15,2), "
    "o_orderdate date, o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
    "lineitem": "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15,2), "
    "l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, "
    "l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, "
    "l_shipmode string, l_comment string",
}
_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0), ("FRANCE", 3),
    ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4),
    ("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4),
    ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
)  # fmt: skip
_HOMES = (2, 3, 6, 7, 8, 18, 20)  # so few that their customers and suppliers meet
_FIRST, _DAYS = dt.date(1993, 1, 1), 365 * 4
_SUPPLIERS, _PARTS, _CUSTOMERS, _ORDERS = 28, 90, 84, 620


def frames() -> dict[str, pl.DataFrame]:
    """Table name -> its rows."""
    draw = random.Random(22)

    def money(low: int, high: int) -> Decimal:
        return Decimal(draw.randint(low * 100, high * 100)) / 100

    def phone(nation: int) -> str:
        return f"{nation + 10}-{draw.randint(100, 999)}-{draw.randint(1000, 9999)}"

    rows: dict[str, list[tuple[object, ...]]] = {
        "region": [(key, name, None if key == 2 else f"of {name}") for key, name in enumerate(_REGIONS)],
        "nation": [(key, name, region, None) for key, (name, region) in enumerate(_NATIONS)],
    }
    rows["supplier"] = [
        (key, f"Supplier#{key:04}", f"street {key}", home, phone(home), money(-900, 9000),
         "Customer is full of Complaints" if key % 9 == 0 else "quick deposits")
        for key, home in ((key, _HOMES[key % len(_HOMES)]) for key in range(1, _SUPPLIERS + 1))
    ]  # fmt: skip
    rows["part"] = [
        (key, f"{draw.choice(['forest', 'green', 'lace', 'misty'])} {draw.choice(['green', 'rose', 'plum'])}",
         f"Manufacturer#{key % 3}", f"Brand#{draw.choice([12, 23, 45])}",
         draw.choice(["LARGE PLATED BRASS", "ECONOMY ANODIZED STEEL", "PROMO BURNISHED TIN", "MEDIUM POLISHED BRASS"]),
         draw.choice([3, 9, 15, 23]), draw.choice(["SM CASE", "MED BOX", "LG BOX", "JUMBO JAR"]),
         Decimal(900 + key), f"part {key}" if key % 5 else None)
        for key in range(1, _PARTS + 1)
    ]  # fmt: skip
    sellers = {key: [(key * 3 + step * 5) % _SUPPLIERS + 1 for step in range(4)] for key in range(1, _PARTS + 1)}
    rows["partsupp"] = [
        (part, supplier, draw.randint(1, 9999), money(1, 1000), "ps") for part in sellers for supplier in sellers[part]
    ]
    rows["customer"] = [
        (key, f"Customer#{key:05}", f"lane {key}", home, phone(home), money(-900, 9900),
         draw.choice(["BUILDING", "MACHINERY", "HOUSEHOLD"]), draw.choice([None, "even accounts"]))
        for key, home in ((key, draw.choice(_HOMES)) for key in range(1, _CUSTOMERS + 1))
    ]  # fmt: skip
    orders, lines = [], []
    for key in range(1, _ORDERS + 1):
        ordered = _FIRST + dt.timedelta(days=draw.randrange(_DAYS))
        states, total = set(), Decimal(0)
        for number in range(1, draw.randint(1, 6) + 1):
            part = draw.randint(1, _PARTS)
            quantity = Decimal(draw.randint(1, 50))
            price = quantity * (900 + part)
            shipped = ordered + dt.timedelta(days=draw.randint(1, 121))
            received = shipped + dt.timedelta(days=draw.randint(1, 30))
            state = "O" if shipped > dt.date(1995, 6, 17) else "F"
            states.add(state)
            total += price
            lines.append(
                (key, part, draw.choice(sellers[part]), number, quantity, price, Decimal(draw.randint(0, 10)) / 100,
                 Decimal(draw.randint(0, 8)) / 100, draw.choice("RA") if state == "F" else "N", state, shipped,
                 ordered + dt.timedelta(days=draw.randint(30, 90)), received,
                 draw.choice(["DELIVER IN PERSON", "COLLECT COD"]), draw.choice(["AIR", "MAIL", "SHIP", "RAIL"]),
                 None if draw.random() < 0.1 else f"line {number}")
            )  # fmt: skip
        customer = draw.choice([key for key in range(1, _CUSTOMERS + 1) if key % 3])
        orders.append(
            (key, customer, states.pop() if len(states) == 1 else "P", total, ordered,
             draw.choice(["1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW"]), f"Clerk#{key % 7}", 0,
             draw.choice(["special packages, odd requests", "regular", None]))
        )  # fmt: skip
    rows["orders"], rows["lineitem"] = orders, lines
    return {name: _frame(name, table) for name, table in rows.items()}


def _frame(name: str, rows: list[tuple[object, ...]]) -> pl.DataFrame:
    dtypes = {
        "int": pl.Int32,
        "bigint": pl.Int64,
        "string": pl.String,
        "date": pl.Date,
        "decimal(15,2)": pl.Decimal(15, 2),
    }
    columns = [column.split(" ") for column in DDL[name].split(", ")]
    return pl.DataFrame(rows, schema={column: dtypes[kind] for column, kind in columns}, orient="row")
