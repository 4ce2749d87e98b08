"""Run by ``scripts/test-stack-tutorials``: a tutorial as it stands, against the running stack, from the project's root.

Arguments: the tutorial's name, a scratch folder, a word that makes names unique. Tables, topic and checkpoint get names
of the stack's tests, so that those of somebody who followed the page stay. Needs only Python.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tutorial_pages import TUTORIALS, Runner, in_shell

SCHEDULED = 240.0
"""Seconds within which the scheduler has synced a new table, also on a busy machine."""


def renamed(page: str, store: str, word: str) -> str:
    """The page with names of the tests, and places of the store that the stack has."""
    checkpoint = "s3a://work/_checkpoints/tutorial"
    assert "s3a://" not in page.replace(checkpoint, ""), "a place that the stack's store may not have"
    changed = page.replace(checkpoint, f"{store}work/stack_tests/checkpoints/{word}")
    return changed.replace("--topic tutorial", f"--topic {word}").replace("tutorial_", "stack_tests_tutorial_")


def main(name: str, folder: str, word: str) -> None:
    """Run the page, and print how many outputs were compared."""
    root = TUTORIALS.parents[1]
    page = renamed((TUTORIALS / f"{name}.md").read_text(), os.environ["STORE_ROOT"], word)
    for inherited in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):  # of the make that runs the tests
        os.environ.pop(inherited, None)
    compared = Runner(Path(folder), in_shell(root, errors=False), patience=SCHEDULED).run(page)
    print(f"{name}: {compared} commands printed what the page shows")


if __name__ == "__main__":
    main(*sys.argv[1:])
