"""Ask a process that answers each line of JSON with one."""

from __future__ import annotations

import json
import subprocess
from typing import Any


def exchange(process: subprocess.Popen[str], request: dict[str, Any]) -> dict[str, Any] | None:
    """Send a request and return the answer, or None if the process has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    answer: dict[str, Any] | None = json.loads(line) if line else None
    return answer
