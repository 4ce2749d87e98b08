"""Generate changes of the sample database from a seed: ``change_history.py SEED TRANSACTIONS`` prints SQL, a line each.

Transactions insert, update and delete customers and orders, change keys, fill large values, and some roll back. Half
way ``customers`` gets a column. A line may run twice or not at all: what the database has at the end is the truth.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator

__all__ = ["history"]

FIRST_ID = 1000
KEYS = 60
NAMES = ("Ada", "Émile", "O''Brien", "a\\b", "“quoted”", "日本", "x y", '{"json": 1}')


def history(seed: int, transactions: int) -> Iterator[str]:
    """Generate the lines of a history: each is one transaction, or a change of the columns."""
    rng = random.Random(seed)
    columns = ["name", "city", "credit", "active"]
    for number in range(transactions):
        if number == transactions // 2:
            yield "ALTER TABLE customers ADD COLUMN IF NOT EXISTS history_note text;"
            columns.append("history_note")
        body = "".join(_statement(rng, columns) for _ in range(rng.randint(1, 4)))
        yield f"BEGIN; {body}{'ROLLBACK' if rng.random() < 0.1 else 'COMMIT'};"


def _statement(rng: random.Random, columns: list[str]) -> str:
    kinds: list[Callable[[random.Random, list[str]], str]] = [
        _customer,
        _customer,
        _update,
        _update,
        _delete,
        _order,
        _rekey,
    ]
    return rng.choice(kinds)(rng, columns) + " "


def _id(rng: random.Random) -> int:
    return FIRST_ID + rng.randrange(KEYS)


def _value(rng: random.Random, column: str) -> str:
    match column:
        case "credit":
            return f"{rng.randrange(-100000, 100000) / 100:.2f}"
        case "active":
            return rng.choice(("true", "false"))
        case "city" if rng.random() < 0.3:
            return "NULL"
        case _:
            return f"'{rng.choice(NAMES)} {rng.randrange(1000)}'"


def _customer(rng: random.Random, columns: list[str]) -> str:
    values = ", ".join(_value(rng, column) for column in columns)
    updates = ", ".join(f"{column} = EXCLUDED.{column}" for column in columns)
    return (
        f"INSERT INTO customers (id, {', '.join(columns)}) VALUES ({_id(rng)}, {values}) "
        f"ON CONFLICT (id) DO UPDATE SET {updates}, changed_at = clock_timestamp();"
    )


def _update(rng: random.Random, columns: list[str]) -> str:
    column = rng.choice(columns)
    low = _id(rng)
    return f"UPDATE customers SET {column} = {_value(rng, column)} WHERE id BETWEEN {low} AND {low + rng.randrange(5)};"


def _delete(rng: random.Random, _: list[str]) -> str:
    return f"DELETE FROM {rng.choice(('customers', 'orders'))} WHERE id = {_id(rng)};"


def _order(rng: random.Random, _: list[str]) -> str:
    note = f"repeat(md5('{rng.random()}'), {rng.choice((1, 300))})"  # The longer one is kept outside of its row.
    return (
        "INSERT INTO orders (id, customer, amount, note) "
        f"VALUES ({_id(rng)}, {_id(rng)}, {_value(rng, 'credit')}, {note}) "
        "ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount;"
    )


def _rekey(rng: random.Random, _: list[str]) -> str:
    old, new = rng.sample(range(FIRST_ID, FIRST_ID + KEYS), 2)
    return f"UPDATE customers SET id = {new} WHERE id = {old} AND NOT EXISTS (SELECT FROM customers WHERE id = {new});"


if __name__ == "__main__":
    print("\n".join(history(int(sys.argv[1]), int(sys.argv[2]))))
