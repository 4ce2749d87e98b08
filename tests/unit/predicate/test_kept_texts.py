"""Conditions as text: what Spark made of each of ``kept_texts.txt`` is what comes out here."""

from __future__ import annotations

import pytest
from unit.predicate.generated_texts import ZONE, here, kept, rows, shown


def test_each_kept_text_has_its_answer_or_is_refused_still():
    table = rows()
    assert {text: shown(here(text, table, ZONE)) for text, _ in kept()} == dict(kept())


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_without_the_zone_of_the_answers_times_that_name_none_are_refused_or_others(zone):
    table = rows()
    for text in ("t = '2024-01-05 07:00:00'", "t IN (TIMESTAMP '2024-01-05 07:00:00')", "t >= '2024-01-05 04:00:00'"):
        found = here(text, table, zone)
        assert found != here(text, table, ZONE)
        assert isinstance(found, str) == (zone is None)
