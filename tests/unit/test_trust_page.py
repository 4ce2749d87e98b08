"""The page of numbers says what the model's page, the kept report and the tests themselves say."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from tests.fuzz.planted import PLANTED
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/trust.md").read_text()


def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def cases_of(path: str, test: str) -> int:
    """How many cases a test's parametrize lists."""
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.FunctionDef) and node.name == test:
            lists = [call.args[1] for call in node.decorator_list if isinstance(call, ast.Call)]
            return len(lists[0].elts)
    raise AssertionError(f"{test} is not in {path}")


def table_rows(text: str, after: str, before: str) -> list[str]:
    part = text[text.index(after) : text.index(before)]
    return [line for line in part.splitlines() if line.startswith("| ")][1:]


def model_counts() -> list[str]:
    text = text_of("docs/reference/model.md")
    scenarios = table_rows(text, "## What is explored", "A death can")
    (states,) = re.findall(r"\| together \|[| ]*([\d,]+) \|", text)
    rules = table_rows(text, "## What each rule", "## What it found")
    return [f"{states} states in {len(scenarios) - 1} scenarios", f"{len(rules)} rules taken away"]


def certify_counts() -> list[str]:
    report = re.sub(r"<[^>]+>|\s+", " ", text_of("docs/reference/certify-report.html"))
    (operations, versions) = re.findall(r"(\d+) operations of \d+ processes made (\d+) versions", report)[0]
    on_purpose = re.search(r"on purpose (.*?) isolation level", re.sub(r" +", " ", report))[1]
    faults = sum(map(int, re.findall(r": (\d+)", on_purpose)))
    planted = re.findall(r"^def test_\w+_found\(", text_of("tests/certify/test_certify_faults.py"), re.MULTILINE)
    return [f"[{operations} operations]", f"{versions} versions, {faults} faults", f"{len(planted)} planted faults"]


def other_counts() -> list[str]:
    kept = [path for path in (ROOT / "tests/fuzz/kept").rglob("*") if path.is_file()]
    answers = json.loads(text_of("tests/peers/interop.json"))
    cases = len(answers["written"]["ours"])
    found = cases_of("tests/simulation/test_simulation.py", "test_a_planted_fault_is_found_and_shrunk")
    routes = "tests/routes/test_routes.py"
    seeds = [line for line in text_of("tests/routes/kept.txt").splitlines() if line and not line.startswith("#")]
    ways = cases_of(routes, "test_a_way_that_lies_leaves_files_or_does_another_thing_is_found_out")
    return [
        f"{3 + len(seeds)} seeds of 6 commands",
        f"{ways} ways that lie",
        f"{len(TARGETS)} readers, {len(kept)} kept inputs",
        f"{len([name for name in PLANTED if not name.endswith('none')])} planted faults: crash",
        f"{cases} tables per writer",
        f"by {len(answers['written'])} writers and {len(answers['read'])} readers",
        f"{found} planted faults |",
        f"{cases_of('tests/unit/test_sbom.py', 'test_what_is_not_pinned_is_named')} ways to download",
    ]


@pytest.mark.parametrize("said", [*model_counts(), *certify_counts(), *other_counts()])
def test_the_page_says_what_there_is(said):
    assert said in PAGE
