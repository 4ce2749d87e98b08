"""The comparison with the reference engine: its kept list, its counts, and what the guide says of them."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PEERS = Path(__file__).resolve().parents[1] / "peers"


@pytest.fixture(scope="module")
def differ() -> Any:
    """The modules of the comparison, which runs outside of the tests."""
    sys.path.insert(0, str(PEERS))
    try:
        from differ import answers, compare, programs, report

        yield SimpleNamespace(answers=answers, compare=compare, programs=programs, report=report)
    finally:
        sys.path.remove(str(PEERS))


def kept_entries() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = tomllib.loads((PEERS / "kept.toml").read_text())["kept"]
    return entries


def test_the_guide_says_how_all_programs_with_a_kept_answer_compare(differ: Any) -> None:
    report = differ.report.kept_report()
    text = differ.report.GUIDE.read_text()
    assert differ.report.with_table(text, differ.report.table_of(report)) == text, (
        "run python -m differ.report in tests/peers"
    )


def test_an_answer_is_of_a_program_however_often_it_is_loaded(differ: Any) -> None:
    def made(default: Any) -> Any:
        def function(at: Any, default: Any = default) -> Any:
            return default

        return differ.programs.Program(name="a/b", function=function)

    assert differ.answers.fingerprint(made(lambda: 1)) == differ.answers.fingerprint(made(lambda: 1))
    assert differ.answers.fingerprint(made("x")) != differ.answers.fingerprint(made("y"))


def test_every_program_that_differs_has_a_reason_of_the_kept_list(differ: Any) -> None:
    reasons = {entry["reason"] for entry in kept_entries()}
    differing = differ.report.read_differing()
    assert differing.keys() <= {program.name for program in differ.programs.all_programs()}
    unknown = {name: set(why) - reasons for name, why in differing.items()}
    assert {name: why for name, why in unknown.items() if why} == {}


@pytest.mark.parametrize("where", ["*", "ends.*", ["outcomes.0", "outcomes.*"]])
def test_a_kept_difference_names_its_places(differ: Any, where: Any) -> None:
    entry = {"program": "a/b", "where": where, "reason": "because"}
    with pytest.raises(ValueError, match=r"a/b: .* names no place"):
        differ.compare.kept_of([entry])
    assert differ.compare.kept_of(kept_entries())


def test_programs_are_counted_by_subject_and_by_reason(differ: Any) -> None:
    entries = [
        {"program": "merge/*", "where": ["outcomes.1", "ends.*.rows"], "reason": "first"},
        {"program": "merge/b", "where": "outcomes.2", "reason": "second"},
    ]
    places = [
        ("merge/a", "outcomes.1"),
        ("merge/a", "ends.t.rows"),
        ("merge/b", "outcomes.1"),
        ("merge/b", "outcomes.2"),
        ("types/a", "outcomes.1"),
    ]
    found = [differ.compare.Difference(program, where, 1, 2) for program, where in places]
    names = ["merge/a", "merge/b", "merge/c", "types/a"]
    differing = differ.report.reasons_of(found, differ.compare.kept_of(entries))
    assert differing == {"merge/a": ["first"], "merge/b": ["first", "second"], "types/a": ["open"]}
    report = differ.report.report_of(names, differing)
    assert report.subjects == {
        "merge": differ.report.Counts(programs=3, equal=1, kept=2, open=0),
        "types": differ.report.Counts(programs=1, equal=0, kept=0, open=1),
    }
    assert report.total == differ.report.Counts(programs=4, equal=1, kept=2, open=1)
    assert report.reasons == {"first": 2, "second": 1}
    table = differ.report.table_of(report)
    assert "| MERGE | 3 | 1 | 2 | 0 |" in table
    assert "| first | 2 |" in table


def test_a_condition_that_spark_calls_by_a_number_is_not_compared(differ: Any) -> None:
    ours = {
        "error": "AnalysisException",
        "text": "no",
        "caught_by": ["AnalysisException"],
        "condition": "A",
        "state": "42",
    }
    results = [
        {"outcomes": [ours | {"condition": name, "state": None}], "ends": {}}
        for name in ("_LEGACY_ERROR_TEMP_0035", "B")
    ]
    mine = {"outcomes": [ours], "ends": {}}
    assert differ.compare.differences("a/b", mine, results[0]) == []
    assert [item.where for item in differ.compare.differences("a/b", mine, results[1])] == ["outcomes.0.condition"]
