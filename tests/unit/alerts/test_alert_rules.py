"""The table of alerts: Prometheus' file is what it generates, and Prometheus and the webhook agree when one goes on."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from missing import missing

from pydelta.tools.alerts.evaluate import MetricSample, SampleHistory
from pydelta.tools.alerts.prometheus import expression, guide_table, prometheus_rules
from pydelta.tools.alerts.queue import AlertQueue
from pydelta.tools.alerts.rules import RULES

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "images" / "monitor" / "rules.yml"
STEP = 15
LABELS = {
    "StatusPageIsGone": {"job": "status-page"},
    "ServiceDoesNotAnswer": {"service": "Trino"},
    "StreamIsBehind": {"checkpoint": "s3a://lake/_checkpoints/q", "table": "lake.orders"},
    "ScheduleFailed": {"schedule": "catalog_sync sync"},
    "ScheduleIsLate": {"schedule": "catalog_sync sync"},
    "ScheduleDoesNotEnd": {"schedule": "python /opt/jobs/inventory.py"},
    "MaintenanceFails": {"table": "lake.orders", "action": "optimize"},
    "DiskFillsUp": {"disk": "Volumes"},
    "DiskIsFull": {"disk": "Volumes"},
    "CommitsAreRefused": {"table": "lake.orders", "error": "DELTA_CONCURRENT_WRITE"},
}
OTHER = {"service": "Presto", "table": "lake.other", "disk": "Other", "schedule": "other", "checkpoint": "/other"}
NAMES = [rule.name for rule in RULES]


def promtool(*arguments):
    found = os.environ.get("PROMTOOL") or shutil.which("promtool")
    if found is None:
        missing("promtool is not there: apt-get install prometheus, or PROMTOOL=… (CONTRIBUTING.md)")
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)


def rule_of(name):
    return next(rule for rule in RULES if rule.name == name)


def labels_of(name):
    return LABELS.get(name, {"table": "lake.orders"})


def steps(rule):
    """A story of each rule in steps of 15 seconds, as whether it holds: quiet, on, a moment off, on, off."""
    on, off = rule.for_seconds // STEP, rule.ends_after_seconds // STEP
    return [*[False] * 4, *[True] * (on + 6), *[False] * (off - 1), *[True] * 3, *[False] * (off + 6)]


def short(rule, length):
    """A series that holds for one step too few, again and again, and never becomes an alert."""
    once = [*[True] * max(rule.for_seconds // STEP, 0), False]
    if rule.for_seconds == 0:
        once = [False]
    return (once * (length // len(once) + 1))[:length]


def series_of(rule):
    """Metric, labels and values per step: one series that becomes an alert once, another that never does."""
    labels, story = labels_of(rule.name), steps(rule)
    other = {name: OTHER.get(name, value) for name, value in labels.items()}
    if rule.name == "CommitsAreRefused":
        [condition] = rule.when
        counts = [0] * 8 + [1, 2, 3, 4] + [4] * (condition.figure.seconds // STEP + rule.ends_after_seconds // STEP + 8)
        slow = [step // 60 for step in range(len(counts))]
        return [(condition.figure.metric, labels, counts), (condition.figure.metric, other, slow)]
    if rule.name == "StreamIsBehind":
        backlog, batch = (condition.figure.metric for condition in rule.when)
        length = rule.for_seconds // STEP + 60
        checkpoint = {"checkpoint": labels["checkpoint"]}
        moving = {"checkpoint": OTHER["checkpoint"]}
        done = [*[7] * (length - 20), *[8] * 20]
        return [
            (backlog, labels, [3] * length), (batch, checkpoint, done),
            (backlog, {**other, "checkpoint": OTHER["checkpoint"]}, [3] * length),
            (batch, moving, [step // 10 for step in range(length)]),
        ]  # fmt: skip
    [condition] = rule.when
    on, off = (condition.threshold + 1, 0) if condition.is_ == ">" else (condition.threshold, 1)
    if condition.is_ == "==" and condition.threshold:
        off = 0
    if rule.unit == "ratio":
        on, off = 0.99, 0.5
    chosen = {**labels, **condition.figure.labels}
    values = [(chosen, story)]
    if rule.by_page:
        values.append((other, short(rule, len(story))))
    return [(condition.figure.metric, named, [on if holds else off for holds in found]) for named, found in values]


def firing_by_page(rule, series):
    """The number of alerts that go on at each step, as the webhook counts them."""
    rule = dataclasses.replace(rule, by_page=True)
    history, queue, found = SampleHistory([rule]), AlertQueue(None, now=-1000), []
    for step in range(len(series[0][2])):
        samples = [MetricSample(metric, labels, values[step]) for metric, labels, values in series]
        queue.note(history.add(samples, step * STEP), step * STEP)
        found.append(queue.begun)
    return found, queue.waiting


def test_the_file_is_what_the_table_generates():
    assert FILE.read_text() == prometheus_rules(), (
        "print it again: python -m pydelta.tools.alerts rules > images/monitor/rules.yml"
    )


def test_the_guide_has_the_table():
    assert guide_table() in (ROOT / "docs" / "guides" / "alerts.md").read_text(), (
        "print it again: python -m pydelta.tools.alerts guide"
    )


def test_names_are_unique_and_each_rule_says_what_to_do():
    assert len(set(NAMES)) == len(NAMES)
    for rule in RULES:
        assert rule.severity in ("critical", "warning")
        assert rule.next.endswith("."), rule.name
        assert rule.meaning.endswith("."), rule.name
        assert rule.for_seconds % STEP == 0, rule.name
        assert rule.ends_after_seconds >= 60, rule.name
        used = set(re.findall(r"\{(\w+)\}", rule.summary)) - {"value"}
        assert used <= set(labels_of(rule.name)), rule.name


def test_every_metric_of_a_rule_is_one_that_the_page_has():
    text = "".join((ROOT / "pydelta" / "tools" / "ui" / name).read_text() for name in ("metrics.py", "values.py"))
    for rule in RULES:
        for condition in rule.when:
            metric = condition.figure.metric
            if metric != "up":
                assert re.sub(r"^pydelta_(table_)?|_total$", "", metric) in text, metric


def test_prometheus_takes_the_file():
    done = promtool("check", "rules", FILE)
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_prometheus_and_the_webhook_agree_when_an_alert_goes_on(tmp_path, name):
    rule = rule_of(name)
    series = series_of(rule)
    firing, messages = firing_by_page(rule, series)
    assert max(firing) == 1
    assert firing[0] == firing[-1] == 0
    assert messages == 2, "one beginning and one end"
    count = f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)'
    if name == "CommitsAreRefused":
        # Prometheus extrapolates an increase, so that it may be ahead by some steps.
        edges = {step for step in range(1, len(firing)) if firing[step] != firing[step - 1]}
        checked = [step for step in range(len(firing)) if all(abs(step - edge) > 4 for edge in edges)]
    else:
        checked = list(range(len(firing)))
    tests = [
        {"expr": count, "eval_time": f"{step * STEP}s", "exp_samples": [{"labels": "{}", "value": firing[step]}]}
        for step in checked
    ]
    written = [
        {"series": metric + "{" + ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items()) + "}",
         "values": " ".join(map(str, values))}
        for metric, labels, values in series
    ]  # fmt: skip
    file = tmp_path / "tests.yml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(FILE)],
                "evaluation_interval": f"{STEP}s",
                "tests": [{"interval": f"{STEP}s", "input_series": written, "promql_expr_test": tests}],
            }
        )
    )
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "summary"),
    [
        ("TwinIsBehind", "Trino's hive and Presto show lake.orders as it was 15m 1s ago."),
        ("DiskIsFull", "The disk Volumes is 99% full."),
        ("MaintenanceFails", "Maintenance failed 3 times: optimize of lake.orders."),
    ],
)
def test_the_texts_are_filled_in_by_prometheus(tmp_path, name, summary):
    rule = rule_of(name)
    metric, labels, values = series_of(rule)[0]
    chosen = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    length = rule.for_seconds // STEP + 5
    expected = {
        "exp_labels": {**labels, "severity": rule.severity},
        "exp_annotations": {"summary": summary, "description": rule.meaning, "next": rule.next},
    }
    file = tmp_path / "tests.yml"
    told = {"eval_time": f"{(length - 1) * STEP}s", "alertname": name, "exp_alerts": [expected]}
    series = {"series": f"{metric}{{{chosen}}}", "values": f"{max(values)}+0x{length}"}
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(FILE)],
                "evaluation_interval": f"{STEP}s",
                "tests": [{"interval": f"{STEP}s", "input_series": [series], "alert_rule_test": [told]}],
            }
        )
    )
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_conditions_belong_together_by_their_labels():
    rule = rule_of("StreamIsBehind")
    assert expression(rule) == (
        "pydelta_stream_backlog_versions > 0 and on (checkpoint) delta(pydelta_stream_batch[5m]) == 0"
    )
    history = SampleHistory([rule])

    def stream(checkpoint, batch):
        return [
            MetricSample("pydelta_stream_backlog_versions", {"checkpoint": checkpoint, "table": "t"}, 2),
            MetricSample("pydelta_stream_batch", {"checkpoint": checkpoint}, batch),
        ]

    assert history.add([*stream("/a", 1), *stream("/b", 1)], 0) == []
    found = history.add([*stream("/a", 1), *stream("/b", 2)], 15)
    assert [dict(item.labels)["checkpoint"] for item in found] == ["/a"]


def test_a_counter_that_begins_again_is_an_increase_from_0():
    history, labels = SampleHistory([rule_of("CommitsAreRefused")]), {"table": "t", "error": "E"}

    def counted(value, step):
        return history.add([MetricSample("pydelta_refused_commits_total", labels, value)], step * STEP)

    assert [counted(value, step) for step, value in enumerate((7, 8, 1))] == [[], [], []]
    [found] = counted(2, 3)
    assert found.value == 3
