"""Texts of ``char(n)`` and ``varchar(n)`` as a column stores them."""

from __future__ import annotations

import pytest

from pydelta.protocol.sized_texts import LENGTH, fitted_text
from pydelta.protocol.types import PrimitiveType, StructField


@pytest.mark.parametrize(
    ("declared", "given", "stored"),
    [
        ("char(5)", "ab", "ab   "),
        ("char(5)", "", "     "),
        ("char(2)", "ab   ", "ab"),
        ("char(2)", "a    ", "a "),
        ("char(2)", "abc", "abc"),
        ("char(2)", "ab\t", "ab\t"),
        ("varchar(3)", "ab    ", "ab "),
        ("varchar(3)", "ab", "ab"),
        ("varchar(2)", "abc ", "abc "),
        ("varchar(2)", "é😀", "é😀"),
        (None, "ab ", "ab "),
    ],
)
def test_a_text_is_padded_or_loses_spaces_and_one_that_is_too_long_stays(declared, given, stored):
    metadata = {} if declared is None else {LENGTH: declared}
    assert fitted_text(given, StructField("c", PrimitiveType("string"), metadata=metadata)) == stored
