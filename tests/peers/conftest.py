"""Runs a script of this folder in the reference engine's environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def run_reference():
    """``run_reference("script.py", argument …)``: to its end, which has to be a good one."""
    python = os.environ["PYDELTA_PEER_PYTHON"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}

    def run(script, *arguments):
        done = subprocess.run(
            [python, str(Path(__file__).with_name(script)), *map(str, arguments)],
            env=environment | {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]

    return run
