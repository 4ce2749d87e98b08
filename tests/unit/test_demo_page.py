"""The page and the summary with which the demo ends: complete, short, and without markup of what is shown."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from jobs.demo import __main__ as demo
from jobs.demo.charts import Bars, Columns, svg
from jobs.demo.page import DemoRun, page, summary
from jobs.demo.stage import Stage
from pydelta.api.console.terminal import Terminal

ODD = "<script>alert('1')</script> & \"x\" \x1b[31m"
VOID = {"meta", "link"}


class _Reader(HTMLParser):
    """Collects a page's text and tags, and checks that each end tag ends the innermost element."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], set(), ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def stage():
    """A stage that played one chapter, in which every text has markup."""
    found = Stage(spark=None, folder=Path(), terminal=Terminal(file=io.StringIO(), width=80))
    with found.chapter("flights", f"chapter {ODD}"):
        with found.step(f"step {ODD}"):
            pass
        found.check(f"good {ODD}", expected=1, found=1)
        found.fact("Loaded", f"fact {ODD}")
        found.chart(Columns(title=f"columns {ODD}", labels=("<J>", "F"), series={"": (1.0, 2.0)}))
        found.chart(Bars(title="bars", bars={f"bar {ODD}": 3}))
        found.table(f"table {ODD}", ["<h>"], [[f"cell {ODD}"], [None]])
    return found


def _run(stage):
    return DemoRun(chapters=stage.chapters[1:], seconds=12.3, made="2026-01-02 03:04 UTC", spark="4.1.0")


def test_the_page_shows_every_text_as_it_is(stage):
    read = _Reader(page(_run(stage)))
    shown = ODD.replace("\x1b", "\\x1b")
    for name in ("chapter", "step", "good", "fact", "table", "cell"):
        assert f"{name} {shown}" in read.text, name
    assert "script" not in read.tags
    assert "1 result compared with Polars; all agree; 12 s" in read.text


def test_the_page_needs_no_network(stage):
    text = page(_run(stage))
    assert set(re.findall(r"(?:href|src|url)\s*[=(]\s*\"?([^\"\s>)]*)", text)) == {"data:,"}
    assert "http" not in text
    assert "@import" not in text


def test_a_failed_check_is_first_on_the_page_and_counted(stage):
    stage.check("bad", expected=1, found=2)
    read = _Reader(page(_run(stage)))
    assert "2 results compared with Polars; 1 differs; 12 s" in read.text
    assert read.text.index("bad: expected 1, found 2") < read.text.index("chapter <script>")
    assert "2 results, 1 of them different" in read.text


def test_the_summary_has_at_most_five_lines_and_the_checks_are_last(stage):
    for number in range(9):
        stage.fact(f"word {number}", "text")
    lines = summary(_run(stage))
    assert len(lines) == 5
    assert lines[0] == ("Loaded", f"fact {ODD}")
    assert lines[-1][0] == "Checked"
    assert summary(replace(_run(stage), chapters=[]))[-1][1].split("; ")[1] == "nothing was compared"


@pytest.mark.parametrize(
    ("values", "heights"),
    [((1.0, 2.0), (57, 114)), ((0.0, 0.0), (0, 0)), ((-2.0, 2.0), (57, 57)), ((2.0, -2.0), (57, 57))],
)
def test_a_column_is_as_high_as_its_value(values, heights):
    drawn = ElementTree.fromstring(svg(Columns(title="t", labels=("a", "b"), series={"": values}, mark=frozenset({1}))))
    columns = drawn.findall("rect")
    assert [float(column.get("height")) for column in columns] == list(heights)
    assert [column.get("class") for column in columns] == ["s0", "mark"]
    (axis,) = drawn.findall("line")
    zero = float(axis.get("y1"))
    for value, column in zip(values, columns, strict=True):
        top, bottom = float(column.get("y")), float(column.get("y")) + float(column.get("height"))
        assert (bottom if value > 0 else top) == pytest.approx(zero)
        assert 34 <= top <= bottom <= 148


def test_a_chart_is_well_formed_and_escapes_its_names():
    odd = ODD.replace("\x1b", "")
    for chart in (
        Columns(title=odd, labels=(odd,), series={odd: (1.5,), "b": (2.0,)}),
        Bars(title=odd, bars={odd: 1234, "none": 0}),
        Bars(title="empty", bars={}),
    ):
        texts = [text.text for text in ElementTree.fromstring(svg(chart)).iter("text")]
        assert texts[0] == chart.title
    assert "1,234" in svg(Bars(title="t", bars={"a": 1234}))


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Runs the demo with one chapter, which takes no Spark; returns the exit code and the output."""

    def run(chapter, *arguments):
        monkeypatch.setattr(demo, "CHAPTERS", {"flights": ("A chapter", chapter)})
        monkeypatch.setattr(demo, "quiet_session", lambda *_, **__: SimpleNamespace(version="4.1.0"))
        out = io.StringIO()
        monkeypatch.setattr(demo, "Terminal", lambda: Terminal(file=out, width=80))
        monkeypatch.chdir(tmp_path)
        return demo.main(list(arguments)), out.getvalue()

    return run


def _good(stage):
    stage.fact("Loaded", "3 rows")
    for number in range(70):
        stage.check(f"check {number}", expected=number, found=number)


def _bad(stage):
    _good(stage)
    stage.check("the bad one", expected=1, found=2)


def test_a_run_ends_with_a_summary_and_the_path_of_the_page(play, tmp_path):
    code, said = play(_good)
    assert code == 0
    end = said.splitlines()[-4:]
    assert "What happened" in end[0]
    assert [line.split()[0] for line in end[1:]] == ["Loaded", "Checked", "The"]
    assert end[-1].split() == ["The", "page:", "demo-data/demo.html"]
    assert "check 7" not in said
    assert "check 7" in (tmp_path / "demo-data/demo.html").read_text()


def test_the_table_of_checks_is_there_when_asked_for(play):
    code, said = play(_good, "--checks")
    assert code == 0
    assert all(re.search(rf"check {number} +ok", said) for number in range(70))


def test_a_check_that_fails_is_printed_and_the_code_says_so(play, tmp_path):
    code, said = play(_bad)
    assert code == 4
    assert re.search(r"the bad one +DIFFERS +expected 1, found 2", said)
    assert "71 results compared, 1 differ" in said
    assert not re.search(r"check 7 +ok", said)
    assert "the bad one" in (tmp_path / "demo-data/demo.html").read_text()


def test_a_run_without_checks_has_not_shown_anything(play):
    assert play(lambda stage: None)[0] == 4


def test_a_page_that_cannot_be_written_is_said(play, tmp_path):
    (tmp_path / "file").touch()
    code, said = play(_good, "--page", "file/demo.html")
    assert code == 1
    assert "The page could not be written." in said
    assert play(_bad, "--page", "file/demo.html")[0] == 4


def test_kept_tables_have_their_page_beside_them(play, tmp_path):
    code, said = play(_good, "--keep", "kept")
    assert code == 0
    assert (tmp_path / "kept/demo.html").exists()
    assert "Next: .venv/bin/pydelta history kept/flights" in said
