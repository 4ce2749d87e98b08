"""Exit codes mean the same everywhere, and every place that lists them agrees with the table of the reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pydelta.errors
from catalog_sync.errors import MetastoreError, MetastoreUnavailableError
from pydelta.api.console.command_line import run_app
from pydelta.errors import CommitStateUnknownError, ConcurrentWriteException, InvalidArgumentError, StorageError
from pydelta.tools.jobs import JobParser, run_job

ROOT = Path(__file__).resolve().parents[2]
WORDS = {
    0: r"done|right|held|nothing to do",
    1: r"change|wrong|invalid|does not exist",
    2: r"run it again",
    3: r"outcome .*unknown",
    4: r"check|wrong",
}
"""What a text about a code has to say."""


def _rows(text, header):
    """Return the cells of the first table with a header, without the header."""
    lines = text[text.index(header) :].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


REFERENCE = _rows((ROOT / "docs/reference/errors.md").read_text(), "| code | means |")
MEANINGS = {int(code): meaning for code, meaning, _ in REFERENCE}


def _jobs():
    found = {}
    for path in sorted((ROOT / "jobs").rglob("*.py")):
        docstring = re.match(r'"""(.*?)"""', path.read_text(), re.DOTALL)
        listed = docstring and re.search(r"Exit codes: (.*?)(?:\n\n|$)", docstring[1], re.DOTALL)
        if listed:
            parts = re.split(r"(?:^|; )(\d) ", " ".join(listed[1].split()))[1:]
            found[str(path.relative_to(ROOT))] = dict(zip(map(int, parts[::2]), parts[1::2], strict=True))
    return found


def test_the_reference_lists_each_code_once():
    assert list(MEANINGS) == [0, 1, 2, 3, 4]
    for code, meaning in MEANINGS.items():
        assert re.search(WORDS[code], meaning), meaning


def test_the_errors_page_and_the_package_say_the_same():
    listed = re.search(r"\n=  =+\n(.*?)\n=  =+\n", pydelta.errors.__doc__, re.DOTALL)[1]
    package = {int(line[0]): line[3:] for line in listed.splitlines()}
    assert list(package) == list(MEANINGS)
    for code, meaning in package.items():
        assert re.search({1: "change"}.get(code, WORDS[code]), meaning), meaning


@pytest.mark.parametrize("path", _jobs())
def test_a_job_means_by_a_code_what_the_reference_says(path):
    for code, meaning in _jobs()[path].items():
        assert re.search(WORDS[code], meaning), f"{code}: {meaning}"


def test_most_jobs_list_their_codes():
    assert len(_jobs()) >= 10


def test_make_submit_explains_the_codes_as_the_reference_does():
    text = (ROOT / "scripts/stack-submit").read_text()
    said = {int(code): meaning for code, meaning in re.findall(r'^  (\d)\) meaning="(.*)"', text, re.MULTILINE)}
    assert list(said) == [1, 2, 3, 4]
    for code, meaning in said.items():
        assert re.search(WORDS[code], meaning), meaning


def test_the_guide_of_certify_and_the_reference_say_the_same():
    guide = _rows((ROOT / "docs/guides/certify.md").read_text(), "| exit code | means |")
    assert guide == [[code, certify] for code, _, certify in REFERENCE if certify]


def test_no_other_page_has_a_table_of_exit_codes():
    tables = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if re.search(r"^\|(?: exit)? code \| means", path.read_text(), re.MULTILINE)
    ]
    assert tables == ["docs/guides/certify.md", "docs/reference/errors.md"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidArgumentError("no"), 1),
        (StorageError("gone"), 1),
        (MetastoreError("no"), 1),
        (StorageError("busy", retryable=True), 2),
        (ConcurrentWriteException("lost"), 2),
        (MetastoreUnavailableError("down"), 2),
        (CommitStateUnknownError("perhaps", txn_id="1"), 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_command_line_and_a_job_end_with_the_code_of_the_error(error, code):
    def fail(*_, **__):
        raise error

    with pytest.raises(SystemExit) as stopped:
        run_app(fail, [])
    assert stopped.value.code == code
    assert run_job(JobParser(prog="sweep.py"), fail, []) == code
