"""``pydelta sql --remote``: the prompt at a server, in a process without a JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

LETTERS = "Zürich 東京 🦆"


@pytest.fixture
def prompt(live):
    def run(*options, typed="", **env):
        command = [
            sys.executable,
            "-m",
            "pydelta.api.cli.cli",
            "sql",
            "--remote",
            f"sc://127.0.0.1:{live.connect}/;user_id=ada",
        ]
        done = subprocess.run(
            [*command, *options],
            input=typed,
            capture_output=True,
            encoding="utf-8",
            check=False,
            env={**os.environ, **env},
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_script_at_a_server_runs_as_it_was_written(prompt, tmp_path):
    script = tmp_path / "q.sql"
    script.write_text(
        f"-- first; second\nCREATE OR REPLACE TABLE at_prompt (id INT, name STRING) USING delta;\n"
        f"INSERT INTO at_prompt VALUES (1, '{LETTERS}'), (2, 'a\n\n-- b; c');/* d; */"
        " SELECT * FROM at_prompt ORDER BY id",
        encoding="utf-8",
    )
    code, said, errors = prompt("--csv", "-f", str(script), LC_ALL="C")
    assert (code, said) == (0, f'id,name\n1,{LETTERS}\n2,"a\n\n-- b; c"\n'), errors
    code, said, _ = prompt("--json", typed="DESCRIBE HISTORY at_prompt LIMIT 1")
    assert (code, json.loads(said)["userName"]) == (0, "ada")


def test_a_script_at_a_server_ends_at_its_first_error_in_words(prompt):
    code, said, errors = prompt(typed="SELECT 1 AS one;\nSELECT * FROM nowhere;\nSELECT 2 AS two")
    assert code == 1
    assert "one" in said and "two" not in said
    assert errors.splitlines()[-1].startswith("line 2: Error: [TABLE_OR_VIEW_NOT_FOUND] ")
    assert "\tat " not in errors and "{" not in errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--remote", "sc://127.0.0.1:1"], "Nothing answers at 127.0.0.1:1"),
        (["--remote", "http://127.0.0.1"], "is not an address of Spark Connect"),
        (["--master", "local"], "--master has no effect"),
    ],
)
def test_a_server_that_is_none_is_said_in_words(prompt, options, words):
    code, said, errors = prompt(*options, "-e", "SELECT 1")
    assert (code, said) == (1, "")
    assert words in errors and "Next: " in errors
