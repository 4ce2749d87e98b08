"""Judge runs by the targets of ``targets.toml``: met, missed and why, or not measured."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.report.runs import Run, value_at

__all__ = ["TARGETS", "Target", "Verdict", "judge", "read_targets"]

TARGETS: Final = Path(__file__).with_name("targets.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a figure of a benchmark should be.

    Args:
        group: Heading in the report.
        name: What is measured.
        benchmark: Which measures it.
        at: Path of names in its result.
        over: Path of what the figure is divided by; empty: by nothing.
        at_most: The figure should be at most this.
        at_least: The figure should be at least this; one of both is given.
        unit: Behind the figure, such as `` s``.
        miss: Why it is missed, where it is.
    """

    group: str
    name: str
    benchmark: str
    at: tuple[str, ...]
    over: tuple[str, ...] = ()
    at_most: float | None = None
    at_least: float | None = None
    unit: str = ""
    miss: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A target and what was measured; None: nothing was."""

    target: Target
    value: float | None

    @property
    def share(self) -> float | None:
        """How much of the target is used: at most 1 where it is met."""
        if self.value is None:
            return None
        if self.target.at_most is not None:
            return _over(self.value, self.target.at_most)
        assert self.target.at_least is not None
        return _over(self.target.at_least, self.value)

    @property
    def is_met(self) -> bool:
        """Whether it was measured and is as it should be."""
        return self.share is not None and self.share <= 1


def read_targets(path: Path = TARGETS) -> list[Target]:
    """Read the targets, in their order.

    Raises:
        ValueError: One has both bounds or none, or a name twice.
    """
    found = [_target(item) for item in tomllib.loads(path.read_text())["target"]]
    for target in found:
        if (target.at_most is None) == (target.at_least is None):
            raise ValueError(f"{target.name} needs at_most or at_least, and not both.")
    names = [(target.group, target.name) for target in found]
    if len(names) != len(set(names)):
        raise ValueError("Two targets have the same name.")
    return found


def judge(targets: list[Target], runs: Mapping[str, Run]) -> list[Verdict]:
    """Compare what was measured with each target."""
    return [Verdict(target=target, value=_value(target, runs.get(target.benchmark))) for target in targets]


def _over(value: float, bound: float) -> float:
    return value / bound if bound else float("inf") if value else 0.0


def _target(item: Mapping[str, Any]) -> Target:
    return Target(**{name: tuple(value) if isinstance(value, list) else value for name, value in item.items()})


def _value(target: Target, run: Run | None) -> float | None:
    if run is None:
        return None
    value = value_at(run.result, list(target.at))
    if value is None or not target.over:
        return value
    divisor = value_at(run.result, list(target.over))
    return None if divisor is None else _over(value, divisor)
