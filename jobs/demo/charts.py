"""Draw small bar charts as SVG, without a package and without scripts.

::

    Columns(title, labels, series)   one column per label and series, for months     -> svg(chart)
    Bars(title, bars)                one horizontal bar per name, for counts          -> svg(chart)

Colours are classes of the page's style sheet: ``s0`` and ``s1`` for the series, ``mark`` for a marked column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

__all__ = ["Bars", "Chart", "Columns", "svg"]

_WIDTH, _HEIGHT = 360, 170
_LEFT, _TOP, _BOTTOM = 8, 34, 22
_ROW, _NAME = 22, 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Values by label, such as rows per month.

    Args:
        title: What the columns show.
        labels: A short name per column.
        series: Values of each series, by its name; at most two.
        mark: Labels to emphasize.
        top: The value of the full height; 0 for the largest value. Charts with the same top can be compared.
    """

    title: str
    labels: tuple[str, ...]
    series: Mapping[str, tuple[float, ...]]
    mark: frozenset[int] = field(default_factory=frozenset)
    top: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Counts by name, from top to bottom.

    Args:
        title: What the bars show.
        bars: The counts, by name.
    """

    title: str
    bars: Mapping[str, float]


Chart = Columns | Bars


def svg(chart: Chart) -> str:
    """Draw a chart as an ``<svg>`` element that scales to its box. Names are escaped."""
    return _columns(chart) if isinstance(chart, Columns) else _bars(chart)


def _columns(chart: Columns) -> str:
    values = [value for series in chart.series.values() for value in series]
    low, top = min(0.0, *values), max(chart.top, *values, 0.0)
    scale = (_HEIGHT - _TOP - _BOTTOM) / ((top - low) or 1.0)
    zero = _TOP + top * scale
    slot = (_WIDTH - 2 * _LEFT) / max(len(chart.labels), 1)
    thick = slot * 0.72 / len(chart.series)
    parts = [_legend(chart, top)]
    for place, label in enumerate(chart.labels):
        left = _LEFT + place * slot + slot * 0.14
        for number, (name, series) in enumerate(chart.series.items()):
            height, kind = abs(series[place]) * scale, "mark" if place in chart.mark and not number else f"s{number}"
            y = zero - height if series[place] > 0 else zero
            box = f'x="{left + number * thick:.1f}" y="{y:.1f}" width="{thick:.1f}" height="{height:.1f}"'
            tip = f"{label}, {name}: {_number(series[place])}" if name else f"{label}: {_number(series[place])}"
            parts.append(f'<rect class="{kind}" {box}><title>{escape(tip)}</title></rect>')
        parts.append(_text(_LEFT + (place + 0.5) * slot, _HEIGHT - 6, "soft middle", label))
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _LEFT}" y1="{zero:.1f}" y2="{zero:.1f}"/>')
    return _frame(chart.title, _HEIGHT, parts)


def _legend(chart: Columns, top: float) -> str:
    """Write the names of the series in their colours, and the value of the full height."""
    named = enumerate(chart.series)
    names = "".join(f'<tspan class="s{number} name">{escape(name)}</tspan>  ' for number, name in named if name)
    return f'<text class="soft" x="{_LEFT}" y="24">{names}full height: {_number(top)}</text>'


def _bars(chart: Bars) -> str:
    top = max([*chart.bars.values(), 0.0]) or 1.0
    room = _WIDTH - _NAME - 70
    parts = []
    for place, (name, value) in enumerate(chart.bars.items()):
        y = 26 + place * _ROW
        width = max(room * value / top, 1.0 if value else 0.0)
        parts.append(_text(_NAME - 8, y + 13, "end", name))
        parts.append(f'<rect class="s0" x="{_NAME}" y="{y}" width="{width:.1f}" height="{_ROW - 6}"/>')
        parts.append(_text(_NAME + width + 6, y + 13, "", _number(value)))
    return _frame(chart.title, 32 + len(chart.bars) * _ROW, parts)


def _frame(title: str, height: int, parts: list[str]) -> str:
    inner = "".join([_text(_LEFT, 11, "title", title), *parts])
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">{inner}</svg>'


def _text(x: float, y: float, kind: str, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
