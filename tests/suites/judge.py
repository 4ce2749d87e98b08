"""Judge a suite's outcomes: each failure has a reason, each reason a test, and nothing differs from what is kept."""

from __future__ import annotations

from collections.abc import Sequence

from tests.suites.rows import Outcomes, Reason

FAILED = "failed"
LEFT_OUT = "left out"


def complaints(found: Outcomes, reasons: Sequence[Reason], *, whole: bool) -> list[str]:
    """Say what is wrong with the outcomes of a run.

    Args:
        found: The outcomes.
        reasons: The suite's.
        whole: Whether all parts ran, so that a reason without a test is one too many.

    Returns:
        Lines for people; none if all is as the reasons say.
    """
    wrong = []
    fails = [reason for reason in reasons if reason.kind == "fails"]
    for name, outcome in found.items():
        patterns = [pattern for reason in fails for pattern in reason.about(name)]
        if outcome["outcome"] == FAILED and not patterns:
            wrong.append(f"{name} failed without a reason: {outcome['text'].strip()[:400]}")
        if outcome["outcome"] == "passed" and patterns:
            wrong.append(f"{name} passed, but {patterns[0]!r} gives a reason for its failure.")
    if not found:
        wrong.append("No test ran.")
    if whole:
        wanted = {"fails": FAILED, "left_out": LEFT_OUT}
        for reason in reasons:
            names = [name for name, outcome in found.items() if outcome["outcome"] == wanted[reason.kind]]
            wrong += [
                f"{pattern!r} matches no test that {'fails' if reason.kind == 'fails' else 'is left out'}."
                for pattern in reason.tests
                if not any(Reason(kind="", tests=(pattern,), reason="").about(name) for name in names)
            ]
    return wrong


def differences(found: Outcomes, kept: Outcomes, *, whole: bool) -> list[str]:
    """Say which tests have another outcome than the one that is kept.

    Args:
        found: The outcomes of the run.
        kept: Those in ``results``.
        whole: Whether all parts ran, so that a kept test that did not run is gone.

    Returns:
        Lines for people.
    """
    names = sorted(found.keys() | kept.keys() if whole else found.keys())
    absent = {"outcome": "not there"}
    return [
        f"{name}: {found.get(name, absent)['outcome']}, kept is: {kept.get(name, absent)['outcome']}"
        for name in names
        if found.get(name, absent)["outcome"] != kept.get(name, absent)["outcome"]
    ]
