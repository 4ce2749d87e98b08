"""What a build says while it goes on, and where its output is. Docker is a stand-in that writes what a build writes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = """#0 building with "default" instance
#1 [internal] load .dockerignore
#2 [minio build 1/3] FROM docker.io/library/debian:trixie-slim
#2 CACHED
#3 [minio build 2/3] RUN apt-get update
#3 DONE 5.5s
#4 [minio build 3/3] RUN go build
#4 12.1 go: downloading
#5 [trino fetch 1/1] RUN mvn
#5 3.1 [INFO] downloading
"""


@pytest.fixture
def build(tmp_path):
    project, tools = tmp_path / "project", tmp_path / "bin"
    shutil.copytree(ROOT / "scripts", project / "scripts")
    shutil.copy(ROOT / "pyproject.toml", project)
    (project / ".env").write_text("S3_SECRET_KEY=x\n")
    tools.mkdir()
    (tmp_path / "output").write_text(OUTPUT)

    def run(code):
        docker = f'case "$*" in *" build"*) cat {tmp_path}/output; sleep 1; exit {code} ;; esac\n'
        (tools / "docker").write_text("#!/bin/sh\n" + docker)
        (tools / "docker").chmod(0o755)
        env = {"PATH": f"{tools}:{os.environ['PATH']}", "LAKEHOUSE_BUILD_TICK": "0.2", "TMPDIR": str(tmp_path)}
        done = subprocess.run(
            [project / "scripts" / "stack-build"], cwd=project, env=env, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    run.logs = lambda: list(tmp_path.glob("lakehouse-build.*"))
    return run


def test_a_build_says_what_is_under_way_and_where_its_output_is(build):
    code, said = build(0)
    assert code == 0
    assert "  2 steps done; under way: minio (build 3/3), trino (fetch 1/1)\n" in said
    assert "the whole output is in " in said
    assert build.logs() == []


def test_a_build_that_fails_keeps_its_output(build):
    code, said = build(1)
    assert code == 1
    assert "go: downloading" in said
    (log,) = build.logs()
    assert f"the whole output is in {log}" in said
    assert log.read_text() == OUTPUT
