"""The report of benchmarks: targets are met, missed or not measured, and what changed is told."""

from __future__ import annotations

import pkgutil

import pytest

import benchmarks
from benchmarks.report.compare import changed_figures, changed_targets
from benchmarks.report.page import page_of
from benchmarks.report.runs import KEPT, Run, read_runs, write_run
from benchmarks.report.slopes import Extended, extended, sizes_of
from benchmarks.report.tables import changes_by_size, many_clients, many_rows, visible_in_trino
from benchmarks.report.targets import Target, judge, read_targets

MACHINE = {"processors": 2, "load": 0.1, "pyspark": "4.3.0", "deltalake": "1.6.0"}
TARGETS = [
    Target(
        group="Small", name="DELETE", benchmark="small", at=("delete", "time"), at_most=1.0, miss="It starts a job."
    ),
    Target(
        group="Small", name="UPDATE", benchmark="small", at=("update", "s", "a"), over=("update", "s", "b"), at_most=1
    ),
    Target(group="Many", name="landed", benchmark="many", at=("landed",), at_least=0.95),
    Target(group="Many", name="refused", benchmark="many", at=("refused",), at_most=0.0),
    Target(group="Many", name="large", benchmark="other", at=("x",), at_most=1.0),
]


def run_of(benchmark, result):
    return Run(
        benchmark=benchmark, ended="2026-01-01 00:00:00", commit="abc", machine=MACHINE, seconds=1.0, result=result
    )


def runs(delete, landed=0.97, refused=0):
    small = {"delete": {"time": delete}, "update": {"s": {"a": 1.0, "b": 2.0}}}
    return {"small": run_of("small", small), "many": run_of("many", {"landed": landed, "refused": refused})}


@pytest.mark.parametrize(
    ("measured", "met"),
    [
        (runs(1.0), [True, True, True, True, False]),
        (runs(1.01), [False, True, True, True, False]),
        (runs(0.5, landed=0.949, refused=1), [True, True, False, False, False]),
        ({}, [False] * 5),
    ],
)
def test_a_target_is_met_at_its_bound_and_missed_beyond(measured, met):
    assert [verdict.is_met for verdict in judge(TARGETS, measured)] == met


def test_what_was_not_measured_is_neither_met_nor_missed():
    page = page_of(judge(TARGETS, runs(2.0)), runs(2.0), ["targets"])
    assert "Of 5 targets 3 are met, 1 missed, 1 not measured." in page
    assert "| DELETE | 2.00 | at most 1 | **missed** |" in page
    assert "| large | – | at most 1 | not measured |" in page
    assert "- **DELETE** (Small): It starts a job." in page
    assert page.count("not known yet") == 0


def test_a_lost_target_and_changed_figures_are_told():
    before, after = runs(0.9), runs(1.8, landed=0.98)
    assert changed_targets(TARGETS, before, after) == {"lost": ["Small, DELETE: 0.9 -> 1.8"], "won": []}
    assert changed_targets(TARGETS, after, before) == {"lost": [], "won": ["Small, DELETE: 1.8 -> 0.9"]}
    assert changed_targets(TARGETS, before, {}) == {"lost": [], "won": []}
    assert changed_figures(before, after, beyond=1.25) == ["small: delete / time: 0.9 -> 1.8  2.00 times"]


def test_steps_are_extended_along_the_line_through_the_two_largest_sizes():
    def at(seconds, other):
        return {"checkpoint MB": 1.0, "open": figures(other), "checkpoint": figures(seconds)}

    def figures(seconds):
        return {"s": 9.0, "processor s": seconds, "peak MB": 70}

    result = {"3 files": at(2.0, 0.4), "1,000 files": at(9.0, 0.3) | {"new": figures(1.0)}, "1 files": at(100.0, 0.1)}
    assert list(sizes_of(result)) == [1, 3, 1000]
    assert extended(result, 1997) == [
        Extended("open", 0.3, 70, 0.3),
        Extended("checkpoint", 9.0, 70, pytest.approx(16.0)),
    ]
    page = page_of([], {"large_logs": run_of("large_logs", result)}, ["targets"])
    assert "| step | 1,000 files, processor s | peak MB there | 100,000,000 files, processor s | |" in page
    assert "| open | 0.30 | 70 | 0 |  |" in page
    assert "| checkpoint | 9.00 | 70 | 702108 | minutes |" in page


def test_a_run_is_read_as_it_was_written(tmp_path):
    write_run(tmp_path, "small", MACHINE, 12.34, {"a": {"b": 1}})
    found = read_runs(tmp_path)["small"]
    assert (found.benchmark, found.machine, found.seconds, found.result) == ("small", MACHINE, 12.3, {"a": {"b": 1}})


def test_every_target_names_a_benchmark_and_every_kept_run_has_its_figures():
    names = {module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.ispkg}
    kept = read_runs(KEPT)
    for target in read_targets():
        assert target.benchmark in names
        found = kept.get(target.benchmark)
        if found is not None and target.at[0] in found.result:  # sizes and kinds can be left out of a run
            assert judge([target], kept)[0].value is not None, target.name


def test_changes_stand_side_by_side_by_the_number_of_rows():
    small = {"delete": {"seconds": {"pydelta": 0.02, "delta-rs": 0.01, "delta-spark": 3.0}}}
    large = {"delete, vectors": {"seconds": {"pydelta": 12.4, "delta-spark": 100.0}}}
    table = changes_by_size({"changes_small": run_of("changes_small", small), "changes": run_of("changes", large)})
    assert table[2:] == [
        "| | 2 million rows | 8 million |",
        "|---|---|---|",
        "| delete | 3.00 / 0.010 / 0.020: 2.00 | – |",
        "| delete, vectors | – | 100 / – / 12 |",
        "",
    ]
    assert changes_by_size({"other": run_of("other", small)}) == []


def test_a_table_of_many_rows_has_its_queries_and_its_changes():
    turns = {"pydelta": {"s": 3.0, "peak MB": 400, "peak MB of the JVM": 500}, "delta-rs": {"s": 6.0, "peak MB": 300}}
    result = {
        "rows": 10_000,
        "made": {"files": 3, "MB": 1234, "s": 1.0},
        "queries": {"count": {"parquet": 1.0, "pydelta": 0.68, "seconds": 0.494}},
        "delete 10 %": turns,
    }
    text = "\n".join(many_rows({"large_table": run_of("large_table", result)}))
    assert "## A table of 10,000 rows" in text
    assert "3 files of 1,234 MB" in text
    assert "| count | 0.49 | 0.68 |" in text
    assert "| delete 10 %, pydelta | 3.00 | 0.50 | 400, and 500 of the JVM |" in text
    assert "| delete 10 %, delta-rs | 6.00 | 1.00 | 300 |" in text
    assert many_rows({}) == []


def test_delays_and_clients_have_their_tables():
    alone = {"native": {"p50": 1.0, "p95": 2.0}}
    loaded = {"native": {"p50": 3.0, "p95": 4.126}, "done beside it": {"appends": 1234, "joins": 2}}
    text = "\n".join(visible_in_trino({"visible": run_of("visible", {"alone": alone, "under load": loaded})}))
    assert "The load: 1,234 appends, 2 joins." in text
    assert "| native | 1.00 | 2.00 | 3.00 | 4.13 |" in text
    said = {"clients": 7, "statements": {"read": {"count": 3, "p50": 0.5, "p95": 1.0, "most": 1.5}}}
    text = "\n".join(many_clients({"serve_load": run_of("serve_load", {"readers": said})}))
    assert "## 7 clients" in text
    assert "| readers: read | 3 | 0.50 | 1.00 | 1.50 |" in text
    assert visible_in_trino({}) == many_clients({}) == []


def test_a_bound_is_needed(tmp_path):
    (tmp_path / "t.toml").write_text('[[target]]\ngroup = "a"\nname = "b"\nbenchmark = "c"\nat = ["d"]\n')
    with pytest.raises(ValueError, match="b needs at_most or at_least"):
        read_targets(tmp_path / "t.toml")
