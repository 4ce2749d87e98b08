"""``pydelta sql``: what is typed and piped in, what is drawn, and how it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pydelta.api.console.terminal import Terminal
from pydelta.api.prompt.statements import Prompt

pytestmark = pytest.mark.spark


@pytest.fixture
def table(spark, tmp_path) -> Iterator[str]:
    name = f"delta.`{tmp_path / 't'}`"
    spark.sql(f"CREATE TABLE {name} (id int, word string, price decimal(9,2)) USING delta")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'one', 1.5), (20, NULL, 100), (3, '', NULL)")
    return name


def typed(spark, lines: list[str], **how) -> tuple[str, str, list[str]]:
    """What a prompt writes, says and remembers when these lines are typed."""
    out, err, remembered = io.StringIO(), io.StringIO(), []
    waiting = iter(lines)

    def read(prompt: str) -> str:
        err.write(prompt)
        line = next(waiting, None)
        if line is None:
            raise EOFError
        if line == "^C":
            raise KeyboardInterrupt
        return line

    prompt = Prompt(spark, out=Terminal(file=out, width=60), err=Terminal(file=err, width=200), **how)
    assert prompt.loop(read, remembered.append) == 0
    return out.getvalue(), err.getvalue(), remembered


def test_statements_take_lines_and_results_are_drawn(spark, table):
    out, err, remembered = typed(
        spark, ["SELECT id, word, price", f"FROM {table}", "ORDER BY id;", "quit", "SELECT 1;"]
    )
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[0].split() == ["id", "word", "price"]
    assert lines[2:] == [" 1   one      1.50", " 3            NULL", "20   NULL   100.00"]
    assert err.startswith("sql> ...> ...> 3 rows, ")
    assert remembered == [f"SELECT id, word, price\nFROM {table}\nORDER BY id;"]


def test_an_error_ends_no_prompt_and_drops_what_followed_it(spark, table):
    out, err, _ = typed(
        spark,
        [f"DELETE FROM {table} WHERE nope = 1; DELETE FROM {table};", "SELEC 1;", "^C", "SELECT 'x", "^C",
         f"VACUUM {table} RETAIN x HOURS;", f"SELECT count(*) AS n FROM {table};"],
    )  # fmt: skip
    assert out.split() == ["n", "─" * 1, "3"] or out.split()[-1] == "3"
    assert err.count("Error: ") == 3
    assert "nope" in err
    assert "\nVACUUM" in err
    assert "^" in err
    for word in ("Traceback", "\tat ", "JVM", "SQLSTATE", "'Project"):
        assert word not in err


def test_help_limits_and_statements_without_rows(spark, table):
    out, err, _ = typed(
        spark, ["help", f"INSERT INTO {table} SELECT id, 'x', 0 FROM range(9);", f"TABLE {table};"], limit=2
    )
    assert "DESCRIBE HISTORY" in err
    assert "Done, " in err
    assert "The first 2 rows, " in err
    assert len(out.splitlines()) == 4


def test_a_count_of_changed_rows_is_shown(spark, table):
    out, _, _ = typed(spark, [f"UPDATE {table} SET word = 'w' WHERE id < 10;"])
    assert out.split()[0] == "num_affected_rows"
    assert out.split()[-1] == "2"


def test_csv_and_json(spark, table):
    values = "SELECT id, word, array(id) AS `list`, X'0AFF' AS b, id AS id FROM " + table + " WHERE id <> 1 ORDER BY id"
    out, _, _ = typed(spark, [f"{values};"], style="csv", limit=0)
    assert out.splitlines() == ["id,word,list,b,id", '3,"",[3],0AFF,3', "20,,[20],0AFF,20"]
    out, _, _ = typed(spark, ["SELECT 'a\"b,\nc' AS t, NULL AS n, TIMESTAMP'2024-01-01 12:00:00' AS ts;"], style="csv")
    assert out == 't,n,ts\n"a""b,\nc",,2024-01-01 12:00:00\n'
    out, _, _ = typed(spark, ["SELECT 1 AS a, NULL AS n, named_struct('x', 1.5D) AS s, 'é\x1b' AS t;"], style="json")
    assert json.loads(out) == {"a": 1, "n": None, "s": {"x": 1.5}, "t": "é\x1b"}


def test_what_would_steer_the_terminal_is_shown(spark):
    out, _, _ = typed(spark, ["SELECT 'a\\nb\\u001b[31m [bold]c' AS `[red]`;"])
    assert "[red]" in out
    assert "a\\nb\\x1b[31m [bold]c" in out


def test_a_result_wider_than_a_terminal_is_shown_row_by_row(spark):
    out = io.StringIO()
    console = Terminal(file=out, width=60, is_terminal=True, color=False)
    many = ", ".join(f"'value number {number}' AS column_{number}" for number in range(12))
    Prompt(spark, out=console, err=Terminal(file=io.StringIO())).script(f"SELECT {many}, NULL AS last")
    assert "row 1" in out.getvalue()
    assert "column_11" in out.getvalue()
    assert "value number 11" in out.getvalue()


def environment(home) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "MASTER", "SPARK_CONF_DIR")}
    return {**kept, "HOME": str(home), "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": "1"}


COMMAND = [sys.executable, "-m", "pydelta.api.cli.cli", "sql", "--warehouse", "w", "--conf", "spark.driver.memory=600m"]


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_typed_at_a_terminal_names_outlive_it_and_scripts_have_exit_codes(tmp_path):
    """One prompt in a terminal, then a pipe into the same warehouse, which fails at its last statement."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "--master", "local[1]"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=environment(tmp_path), start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, b"CREATE TABLE words (id int,\n  word string) USING delta;\nINSERT INTO words VALUES (7, 'seven');\n"
                   b"SELECT wrd FROM words;\nSELECT word FROM words;\nquit\n")  # fmt: skip
    said = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        said += part
    assert process.wait(120) == 0, said.decode()
    text = said.decode()
    assert "sql> " in text
    assert "...> " in text
    assert "Error: [UNRESOLVED_COLUMN.WITH_SUGGESTION]" in text
    assert "seven" in text.split("Error: ")[1]
    for word in ("Traceback", "WARN", "Using Spark's default log4j", "\tat "):
        assert word not in text
    kept = tmp_path / ".pydelta_sql_history"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text().splitlines()[-4:-2] == [
        "CREATE TABLE words (id int, word string) USING delta;", "INSERT INTO words VALUES (7, 'seven');"
    ]  # fmt: skip

    script = "-- a script\nSELECT id, word FROM words;\n\nSELEC 1;\nDELETE FROM words;\n"
    done = subprocess.run(
        [*COMMAND, "--master", "local[1]", "--csv"],
        input=script, capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path), timeout=240, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "id,word\n7,seven\n"), done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("1 row, ")
    assert lines[1].startswith("line 4: Error: [PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'")
    assert lines[2:] == ["SELEC 1", "^^^"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--file", "missing.sql"], "missing.sql cannot be read"),
        (["--conf", "spark.x"], "--conf NAME=VALUE"),
        (["--limit", "-1"], "--limit"),
    ],
)
def test_arguments_that_make_no_sense_start_nothing(tmp_path, arguments, says):
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path), timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_warehouse_that_another_prompt_has_open_is_refused(tmp_path):
    import fcntl

    (tmp_path / "w").mkdir()
    with (tmp_path / "w" / "_catalog.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = subprocess.run(
            [*COMMAND, "-e", "SELECT 1"], capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path),
            timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "Another prompt has the warehouse" in done.stderr
