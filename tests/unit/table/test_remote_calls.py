"""What a remote ``DeltaTable`` sends of the arguments that it was given."""

from __future__ import annotations

import datetime as dt

import pytest

from pydelta.api.python.remote_calls import Chain


@pytest.mark.parametrize("given", [
    dt.datetime(2024, 7, 1, 14, 30),
    dt.datetime(2024, 7, 1, 12, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 7, 1, 8, 30, tzinfo=dt.timezone(dt.timedelta(hours=-4))),
])  # fmt: skip
@pytest.mark.usefixtures("in_berlin")
def test_a_time_is_an_instant_of_the_clients_clock(given):
    sent = Chain(spark=None)._sent({"at": [given]}, "vacuum")["at"][0]
    assert sent.isoformat() == "2024-07-01T12:30:00+00:00"
