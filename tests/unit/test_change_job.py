"""The arguments and the state of the job that follows a database's changes, and the steps of verify that watch it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from pyspark.sql.types import LongType, StringType

from jobs.changes.__main__ import arguments, tables_of
from jobs.changes.following import Known
from jobs.changes.status import Board, serve
from jobs.verify.changes import seen
from pydelta.errors import InvalidArgumentError

GIVEN = ["--brokers", "kafka:9092", "--warehouse", "s3a://warehouse", "--checkpoints", "s3a://work/changes/"]


def tables(names: str, name: str = "shop", *more: str):
    return tables_of(arguments().parse_args([*GIVEN, "--name", name, "--tables", names, *more]))


def test_each_table_has_a_topic_a_name_and_a_checkpoint_of_its_own():
    found = tables("public.Orders, sales.orders")
    assert [(it.topic, it.table, it.checkpoint) for it in found] == [
        ("shop.public.Orders", "shop.orders", "s3a://work/changes/shop.orders"),
        ("shop.sales.orders", "shop.sales_orders", "s3a://work/changes/shop.sales_orders"),
    ]


def test_the_job_that_merges_gets_the_known_columns_and_reads_only_what_is_committed():
    (it,) = tables("public.orders")
    known = Known(columns={"id": LongType(), "v": StringType()}, keys=["id"], key_schema="{}", schemas=["{}"])
    words = it.arguments(known)
    after = dict(zip(words[::2], words[1::2], strict=True))
    assert json.loads(after["--schema"])["fields"][1]["name"] == "v"
    assert (after["--merge-key"], after["--changes"], after["--trigger"]) == ("id", "debezium", "1")
    assert after["--option"] == "kafka.isolation.level=read_committed"


@pytest.mark.parametrize(
    ("names", "name", "more", "said"),
    [
        ("orders", "shop", [], "--tables names 'orders'"),
        ("public.o'; DROP", "shop", [], "--tables names"),
        ("public.a,public.A", "shop", [], "Two of --tables would be shop.a"),
        ("public.a", "Shop'", [], "--name is"),
        ("public.a", "shop", ["--max-per-trigger", "0"], "--max-per-trigger is 0"),
    ],
)
def test_names_that_cannot_be_right_are_refused(names, name, more, said):
    with pytest.raises(InvalidArgumentError, match=said):
        tables(names, name, *more)


def test_the_state_is_503_while_a_table_is_stopped_and_says_why():
    board = Board(["shop.a", "shop.b"], clock=lambda: 12.0)
    server = serve(board, 0)
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert json.load(answer)["tables"]["shop.a"]["state"] == "no change since its start"
        board.failed("shop.a", "no such column")
        board.applied("shop.b", {"batch": 3, "rows": 2, "written": 2, "version": 7})
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(address, timeout=10)
        found = json.load(raised.value)
        assert (raised.value.code, found["stopped"]) == (503, ["shop.a"])
        assert found["tables"]["shop.a"]["error"] == "no such column"
        assert found["tables"]["shop.b"] == {"state": "follows", "at": 12.0, "batch": 3, "rows": 2, "version": 7}
        board.applied("shop.a", {"batch": 4})
        assert board.answer()[0] == 200
    finally:
        server.shutdown()


def test_steps_are_seen_in_their_order_and_one_that_never_comes_ends_the_watch():
    now, counts = [0.0], {"first": [0, 0, 1], "second": [1], "third": [0] * 10_000, "fourth": [1]}

    def pause(seconds: float) -> None:
        now[0] += seconds

    found = list(seen(counts, lambda name: counts[name].pop(0), lambda: now[0], pause))
    assert found == [pytest.approx(0.4), pytest.approx(0.4), None]
