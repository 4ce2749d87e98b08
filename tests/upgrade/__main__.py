"""``make test SUITE=upgrade``: an earlier version of the library and this one write one table, in turns and at once.

::

    git archive COMMIT pydelta --> the earlier version      two processes, one per version, asked by turns
    append, delete, checkpoint --> both read what the steps so far have to give
    both at once               --> no row is lost or doubled; the protocol is what it was

``--from COMMIT`` names another commit than ``tests/stack/upgraded_from``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

from pydelta import LocalTable
from tests.upgrade.steps import BESIDE, EARLIER, IN_TURN, NOW, Step, expected_after, problems

ROOT = Path(__file__).resolve().parents[2]
PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "4"}


class Version:
    """A process with one version of the library."""

    def __init__(self, folder: Path, uri: str) -> None:
        env = os.environ | {"PYTHONPATH": str(folder), "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, str(Path(__file__).with_name("child.py")), uri]
        # The hooks of the installed distribution are those of this version; the earlier one reports each that it lacks.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - __exit__ closes it
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )
        place = self.ask({"do": "where"})["where"]
        if not Path(place).is_relative_to(folder):
            raise SystemExit(f"The process uses {place}, but it should use the library in {folder}.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._said.close()

    def begin(self, asked: dict[str, Any]) -> None:
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._said.seek(0)
            raise SystemExit(f"{self._said.read()[-3000:]}\nA version of the library ended with exit code {code}.")
        return json.loads(line)

    def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.begin(asked)
        return self.answer()


def earlier_library(commit: str, folder: Path) -> Path:
    """Unpack the library of a commit."""
    if subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=ROOT, check=False).returncode:
        raise SystemExit(f"This clone does not have the commit {commit}. Next: git fetch --unshallow, or --from COMMIT")
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit, "pydelta"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-xf", "-", "-C", str(folder)], input=packed, check=True)
    return folder


def protocols(table: Path) -> list[str]:
    """The protocol actions of the log, as they stand there."""
    lines = [line for path in sorted((table / "_delta_log").glob("*.json")) for line in path.read_text().splitlines()]
    return [line for line in lines if line.startswith('{"protocol"')]


def run(versions: dict[str, Version], table: Path) -> tuple[int, list[str]]:
    """Do all steps; returns how many answers were compared, and what was wrong."""
    before, found, done, compared = protocols(table), [], [], 0
    for step in IN_TURN:
        done.append(step)
        versions[step.by].ask(step.asked)
        answers = {name: version.ask({"do": "read"}) for name, version in versions.items()}
        found += problems(step, expected_after(done), answers)
        compared += len(answers)
    for step in BESIDE:
        versions[step.by].begin(step.asked)
    for step in BESIDE:
        versions[step.by].answer()
    answers = {name: version.ask({"do": "read"}) for name, version in versions.items()}
    found += problems(Step("both", "many", 0, 0), expected_after([*IN_TURN, *BESIDE]), answers)
    if len(before) != 1 or protocols(table) != before:
        found.append(f"The protocol was {before}, and the log has {protocols(table)}.")
    return compared + len(answers), found + untried(table)


def untried(table: Path) -> list[str]:
    """Say which of the files that the versions have to exchange are not there."""
    commits = [path.read_text() for path in sorted((table / "_delta_log").glob("*.json"))]
    vectors = sum('"deletionVector":{' in text for text in commits)
    checkpoints = len(list((table / "_delta_log").glob("*.checkpoint*.parquet")))
    said = f"Only {vectors} commits with deletion vectors and {checkpoints} checkpoints were written."
    return [] if vectors >= 4 and checkpoints >= 2 else [said]


def main() -> None:
    """Compare the two versions, and end with exit code 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=main.__doc__)
    kept = (ROOT / "tests" / "stack" / "upgraded_from").read_text().splitlines()[-1]
    parser.add_argument("--from", dest="commit", default=kept, metavar="COMMIT", help="the earlier version")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch, "table")
        LocalTable.create(str(table), {"id": "bigint"}, properties=PROPERTIES)
        old = earlier_library(commit, Path(scratch, "earlier"))
        with Version(old, str(table)) as earlier, Version(ROOT, str(table)) as now:
            compared, found = run({EARLIER: earlier, NOW: now}, table)
    for line in found:
        print(line, file=sys.stderr)
    print(f"{compared} answers of {commit[:12]} and of this version were compared, and {len(found)} things are wrong.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
