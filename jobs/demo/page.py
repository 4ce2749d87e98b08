"""Write what the demo did as one HTML page, which needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from jobs.demo.charts import svg
from jobs.demo.stage import Chapter, Check, ShownTable
from pydelta.api.console.terminal import visible

__all__ = ["DemoRun", "page", "summary"]

_FACTS: Final = 4
_LONGEST_CELL: Final = 300
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5a6675; --line: #d9dee5; --page: #fff; --tint: #f4f6f8;
  --good: #176b3a; --bad: #a61b1b; --s0: #3d6fa5; --s1: #9bb8d6; --mark: #c2541b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #9aa6b5; --line: #333c48; --page: #14181d; --tint: #1c2229;
    --good: #63c58c; --bad: #ff8a80; --s0: #6ea3dc; --s1: #3c5876; --mark: #f0935a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 0; } p { margin: .4rem 0; }
section { border-top: 1px solid var(--line); margin-top: 2rem; padding-top: 1.25rem; }
.soft { color: var(--soft); } .good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); font-weight: 600; }
.verdict { border-left: .4rem solid var(--good); background: var(--tint); padding: .6rem 1rem; margin: 1rem 0; }
.verdict.failed { border-color: var(--bad); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: .6rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)); gap: 1rem 1.5rem;
  margin: 1rem 0; }
svg { width: 100%; height: auto; font: 11px system-ui, sans-serif; } text { fill: var(--ink); }
tspan.name { font-weight: 600; } text.title { font-size: 12.5px; font-weight: 600; } text.soft { fill: var(--soft); }
text.middle { text-anchor: middle; } text.end { text-anchor: end; }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .mark { fill: var(--mark); } .axis { stroke: var(--line); }
ol { list-style: none; margin: .8rem 0; padding: 0; }
li { display: grid; grid-template-columns: 1fr 7rem 4rem; gap: .8rem; align-items: center; padding: .1rem 0; }
li .time { background: var(--s1); height: .5rem; min-width: 1px; }
li .n { text-align: right; font-variant-numeric: tabular-nums; }
details { margin: .5rem 0; } summary { cursor: pointer; } .wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .4rem 0; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
@media (max-width: 36rem) { li { grid-template-columns: 1fr 4rem; } li .time { display: none; } }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """A run of the demo, as its summary and its page show it.

    Args:
        chapters: The chapters that ran.
        seconds: How long everything took.
        made: When it ended, as text.
        spark: Spark's version.
    """

    chapters: Sequence[Chapter]
    seconds: float
    made: str
    spark: str

    @property
    def checks(self) -> list[Check]:
        """The checks of all chapters."""
        return [check for chapter in self.chapters for check in chapter.checks]

    @property
    def failed(self) -> list[Check]:
        """The checks that found a difference."""
        return [check for check in self.checks if not check.passed]


def summary(run: DemoRun) -> list[tuple[str, str]]:
    """Summarize a run in at most five lines, each a word and a text: what was done first, and the checks last."""
    facts = [(fact.word, fact.text) for chapter in run.chapters for fact in chapter.facts]
    return [*facts[:_FACTS], ("Checked", _verdict(run))]


def page(run: DemoRun) -> str:
    """Write the page. Every text is escaped."""
    facts = [(fact.word, fact.text) for chapter in run.chapters for fact in chapter.facts]
    listed = "".join(f"<dt>{_text(word)}</dt><dd>{_text(text)}</dd>" for word, text in facts)
    differ = "".join(
        f"<p><span class=bad>{_text(check.name)}</span>: {_text(check.detail)}</p>" for check in run.failed
    )
    verdict = "verdict failed" if run.failed or not run.checks else "verdict"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>make demo</title>
<link rel="icon" href="data:,">
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Delta tables, loaded, corrected, deleted from and read in the past</h1>
<p class="soft">make demo, {_text(run.made)}: pydelta in Spark {_text(run.spark)}, without a Delta jar.</p>
<div class="{verdict}"><p>{_text(_verdict(run))}</p>{differ}</div>
<dl>{listed}</dl>
{"".join(map(_chapter, run.chapters))}
</main>
</body>
</html>
"""


def _verdict(run: DemoRun) -> str:
    count = f"{_counted(len(run.checks), 'result')} compared with Polars"
    agreed = f"{len(run.failed)} {'differs' if len(run.failed) == 1 else 'differ'}" if run.failed else "all agree"
    return f"{count}; {agreed if run.checks else 'nothing was compared'}; {run.seconds:.0f} s"


def _chapter(chapter: Chapter) -> str:
    slowest = max((step.seconds for step in chapter.steps), default=0.0) or 1.0
    steps = "".join(
        f"<li><span>{_text(step.title)}</span>"
        f'<span class="time" style="width:{100 * step.seconds / slowest:.0f}%"></span>'
        f'<span class="n soft">{step.seconds:.1f} s</span></li>'
        for step in chapter.steps
    )
    charts = "".join(f"<div>{svg(chart)}</div>" for chart in chapter.charts)
    return f"""<section>
<h2>{_text(chapter.title)}</h2>
<div class="charts">{charts}</div>
<ol>{steps}</ol>
{_checks(chapter.checks)}
{"".join(map(_table, chapter.tables))}
</section>
"""


def _checks(checks: Sequence[Check]) -> str:
    failed = sum(not check.passed for check in checks)
    count = _counted(len(checks), "result")
    title = f"{count}, {failed} of them different" if failed else f"{count} as expected"
    rows = [(check.name, "agrees" if check.passed else "differs", check.detail) for check in checks]
    kind = "bad" if failed else "good"
    opened = " open" if failed else ""
    return f'<details{opened}><summary class="{kind}">{title}</summary>{_rows(("result", "", "found"), rows)}</details>'


def _table(table: ShownTable) -> str:
    return f"<details><summary>{_text(table.title)}</summary>{_rows(table.header, table.rows)}</details>"


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{body}</table></div>'


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _text(text: str) -> str:
    shown = visible(text)
    return escape(shown if len(shown) <= _LONGEST_CELL else f"{shown[:_LONGEST_CELL]} …")
