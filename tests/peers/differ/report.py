"""Count how programs compare, by subject and by reason. ``python -m differ.report`` writes the counts into the guide.

::

    python -m differ --record    -> answers/, and differing.json: which programs differ, and why that stays
    python -m differ.report      -> tables of all programs with a kept answer, by subject and by reason, in
                                    docs/guides/migrating.md
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from differ.answers import read_answers
from differ.compare import Difference, Kept
from differ.programs import all_programs

__all__ = [
    "DIFFERING",
    "GUIDE",
    "OPEN",
    "Counts",
    "Report",
    "kept_report",
    "note_differing",
    "read_differing",
    "reasons_of",
    "report_of",
    "subjects_of",
    "table_of",
    "with_table",
]

OPEN = "open"
DIFFERING = Path(__file__).resolve().parent.parent / "differing.json"
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "migrating.md"
_MARKS = ("<!-- compared: written by python -m differ.report -->\n", "<!-- /compared -->\n")
_SUBJECTS = {
    "assignment": "values of one type for columns of another, in INSERT, UPDATE and MERGE",
    "catalog": "tables in spark.catalog",
    "change": "conditions and values of DELETE and UPDATE",
    "evolution": "schemas that evolve",
    "generated": "random sequences of statements",
    "history": "DESCRIBE HISTORY and DETAIL",
    "merge": "MERGE",
    "migration": "complete programs, as in documentation",
    "names": "names, views and EXECUTE IMMEDIATE",
    "nulls": "NULL at each level of nested values",
    "odd": "odd folders and odd columns",
    "pandas": "pandas on Spark",
    "partitions": "PARTITION clauses with values of every type",
    "paths": "paths without a table, names that a catalog refuses",
    "statements": "parameters, misplaced aggregates, folders of other files",
    "streams": "streams",
    "tables": "CREATE, ALTER, DESCRIBE and SHOW",
    "types": "writing, reading, comparing and merging each type",
    "versions": "time travel, RESTORE, VACUUM, OPTIMIZE, change feed",
    "views": "views of every kind under every ALTER",
    "writers": "DataFrameWriterV2, and saveAsTable of other formats",
    "writes": "INSERT in all its forms, writers with their options",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How the programs of a subject compare.

    Args:
        programs: How many were compared.
        equal: With the same rows, errors, history and details on both engines.
        kept: With differences that stay, each with a reason.
        open: With others.
    """

    programs: int
    equal: int
    kept: int
    open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What comparisons found.

    Args:
        subjects: By the first part of the programs' names.
        reasons: Why differences stay, with the number of programs.
    """

    subjects: Mapping[str, Counts]
    reasons: Mapping[str, int]

    @property
    def total(self) -> Counts:
        """All subjects together."""
        sums = {name: sum(getattr(item, name) for item in self.subjects.values()) for name in Counts.__slots__}
        return Counts(**sums)


def reasons_of(found: Sequence[Difference], kept: Sequence[Kept]) -> dict[str, list[str]]:
    """Tell why the differences of each program stay: ``OPEN`` stands among them for one without a reason. Pure.

    Args:
        found: All differences.
        kept: Those that stay; the first that holds gives the reason.
    """
    reasons: dict[str, set[str]] = {}
    for difference in found:
        holds = next((item for item in kept if item.holds(difference)), None)
        reasons.setdefault(difference.program, set()).add(OPEN if holds is None else holds.reason)
    return {name: sorted(reasons[name]) for name in sorted(reasons)}


def report_of(names: Iterable[str], differing: Mapping[str, Sequence[str]]) -> Report:
    """Count by subject and by reason. Pure.

    Args:
        names: The programs that were compared.
        differing: Those that differ, as ``reasons_of`` tells.
    """
    subjects: dict[str, Counter[str]] = {}
    by_reason: Counter[str] = Counter()
    for name in names:
        why = differing.get(name, ())
        by_reason.update(reason for reason in why if reason != OPEN)
        outcome = "open" if OPEN in why else "kept" if why else "equal"
        subjects.setdefault(name.partition("/")[0], Counter()).update(["programs", outcome])
    counts = {name: Counts(**{key: found[key] for key in Counts.__slots__}) for name, found in sorted(subjects.items())}
    return Report(subjects=counts, reasons=dict(by_reason))


def note_differing(programs: Iterable[str], compared: Collection[str], differing: Mapping[str, Sequence[str]]) -> None:
    """Keep which programs differ.

    Args:
        programs: All that there are; those that are gone go.
        compared: Those of this comparison.
        differing: As ``reasons_of`` tells.
    """
    known = read_differing()
    others = {name: known[name] for name in set(programs) & known.keys() - set(compared)}
    DIFFERING.write_text(json.dumps({**others, **differing}, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def read_differing() -> dict[str, list[str]]:
    """Which programs differed when they were last compared, and why that stays."""
    found: dict[str, list[str]] = json.loads(DIFFERING.read_text()) if DIFFERING.exists() else {}
    return found


def kept_report() -> Report:
    """The report on all programs with a kept answer."""
    return report_of(sorted(read_answers(all_programs())), read_differing())


def subjects_of(report: Report) -> str:
    """The report by subject. Pure."""
    rows = [(_SUBJECTS[name], counts) for name, counts in report.subjects.items()]
    lines = ["| programs about | compared | equal | different, with a reason | open |", "|---|--:|--:|--:|--:|"]
    for title, counts in (*rows, ("**all**", report.total)):
        lines.append(f"| {title} | {counts.programs} | {counts.equal} | {counts.kept} | {counts.open} |")
    return "\n".join(lines) + "\n"


def table_of(report: Report) -> str:
    """The report as the guide has it. Pure."""
    lines = [subjects_of(report), "| difference and reason | programs |", "|---|--:|"]
    ordered = sorted(report.reasons.items(), key=lambda item: (-item[1], item[0]))
    lines += [f"| {reason.replace('|', chr(92) + '|')} | {number} |" for reason, number in ordered]
    return "\n".join(lines) + "\n"


def with_table(text: str, table: str) -> str:
    """A page with the table between its marks. Pure."""
    before, _, rest = text.partition(_MARKS[0])
    _, mark, after = rest.partition(_MARKS[1])
    assert mark, "the text has no place for the table"
    return f"{before}{_MARKS[0]}\n{table}\n{mark}{after}"


def main() -> int:
    """See above."""
    report = kept_report()
    GUIDE.write_text(with_table(GUIDE.read_text(), table_of(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
