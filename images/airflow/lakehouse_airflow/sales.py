"""Make a day of sales, the same whenever it is made: the input of the DAG daily_load."""

from __future__ import annotations

import csv
import datetime as dt
import io
import random
from dataclasses import dataclass
from decimal import Decimal

__all__ = ["SCHEMA", "Sale", "as_csv", "facts", "sales_of"]

SCHEMA = "id bigint, day date, customer string, product string, pieces int, amount decimal(10,2)"
_PRICES = {
    "bread": Decimal("3.20"),
    "cheese": Decimal("7.45"),
    "coffee": Decimal("5.90"),
    "olives": Decimal("4.15"),
    "tea": Decimal("2.80"),
}
_CUSTOMERS = ("Ada", "Émile", "Grace", "Lin", "Søren", "Zoë")


@dataclass(frozen=True, slots=True)
class Sale:
    """One sale."""

    id: int
    day: dt.date
    customer: str
    product: str
    pieces: int
    amount: Decimal


def sales_of(day: dt.date) -> list[Sale]:
    """Return the sales of a day, between 200 and 300."""
    chance = random.Random(f"sales of {day.isoformat()}")
    found = []
    for number in range(200 + chance.randrange(101)):
        product, pieces = chance.choice(sorted(_PRICES)), chance.randint(1, 9)
        sale = Sale(
            day.toordinal() * 1000 + number, day, chance.choice(_CUSTOMERS), product, pieces, pieces * _PRICES[product]
        )
        found.append(sale)
    return found


def as_csv(sales: list[Sale]) -> bytes:
    """Write sales as CSV with a header."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "day", "customer", "product", "pieces", "amount"])
    for sale in sales:
        writer.writerow([sale.id, sale.day.isoformat(), sale.customer, sale.product, sale.pieces, sale.amount])
    return text.getvalue().encode()


def facts(sales: list[Sale]) -> dict[str, str | int]:
    """Return what a table with these sales has to show: how many there are, and what they are worth together."""
    return {"rows": len(sales), "amount": str(sum((sale.amount for sale in sales), Decimal(0)))}
