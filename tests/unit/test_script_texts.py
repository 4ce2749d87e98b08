"""What no script of the stack may have in its text."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_command_is_read_by_a_grep_that_stops_early():
    """Under ``pipefail`` the command's end by SIGPIPE would count as its failure, if it still writes."""
    folders = [*(ROOT / "scripts").iterdir(), *(ROOT / "images").glob("*/bin/*"), ROOT / ".ci" / "run"]
    texts = {path: path.read_text() for path in folders if path.is_file()}
    checked = {path: text for path, text in texts.items() if "pipefail" in text or path.name == "stack-lib"}
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path, text in checked.items()
        for line in text.splitlines()
        if re.search(r"\| *grep (-\w*q|-m)", line)
    ]
    assert len(checked) > 20 and not found, "\n".join(found)
