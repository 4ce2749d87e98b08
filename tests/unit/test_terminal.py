"""What a person reads is what was written: brackets, codes of emojis and of terminals too, in every way to say it."""

from __future__ import annotations

import ast
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog_sync.cli import main as catalog_sync
from jobs.demo.stage import Stage
from pydelta.api.cli.cli import main as pydelta_cli
from pydelta.api.console.command_line import make_app, run_app
from pydelta.api.console.terminal import Terminal, styled
from pydelta.api.console.vacuum_display import counts_line
from pydelta.commands.vacuum.command import VacuumProgress
from pydelta.errors import InvalidArgumentError
from pydelta.log import DeltaLog
from pydelta.protocol.actions import AddFile, CommitInfo, Metadata, Protocol, encode_commit
from pydelta.storage import LocalStore
from pydelta.tools.doctor.doctor import Check, Examination

ROOT = Path(__file__).resolve().parents[2]
ODD = ("[sync]", "[/]", "[red]", "[bold red]x[/bold red]", ":smile:", "[link=http://a]b[/link]", r"\[a]")
_CODES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x1b]*\x1b\\)")


def _terminal(*, is_terminal: bool, width: int = 80) -> tuple[Terminal, io.StringIO]:
    out = io.StringIO()
    return Terminal(file=out, width=width, is_terminal=is_terminal), out


def _read(out: io.StringIO) -> str:
    return _CODES.sub("", out.getvalue())


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("odd", ODD)
def test_every_way_to_say_something_says_it_as_it_is(odd, is_terminal):
    ways = {
        "say": lambda shown: shown.say(f"pip install '.{odd}'"),
        "parts": lambda shown: shown.say("a ", styled(odd, "green"), " b", style="red"),
        "unwrapped": lambda shown: shown.say(odd, wrap=False),
        "write": lambda shown: shown.write(odd),
        "rule": lambda shown: shown.rule(odd),
        "title": lambda shown: shown.table(["a"], [["b"]], title=odd),
        "column": lambda shown: shown.table([odd], [["b"]]),
        "cell": lambda shown: shown.table(["a"], [[odd]]),
        "result column": lambda shown: shown.result([odd], [["1"]], numeric=[True]),
        "result cell": lambda shown: shown.result(["a"], [[odd]], numeric=[False]),
    }
    for way, say in ways.items():
        terminal, out = _terminal(is_terminal=is_terminal)
        say(terminal)
        assert odd in _read(out), way


@pytest.mark.parametrize("odd", ODD)
def test_what_is_shown_in_passing_is_shown_as_it_is(odd):
    terminal, out = _terminal(is_terminal=True)
    with terminal.status(odd) as show:
        show(f"then {odd}")
    assert odd in _read(out)
    terminal, out = _terminal(is_terminal=True)
    with terminal.bar(odd) as show:
        show(odd, 10, 5, f"counts {odd}")
    assert _read(out).count(odd) >= 2


def test_a_wide_result_row_by_row_is_as_it_is():
    terminal, out = _terminal(is_terminal=True, width=100)
    names = [f"{odd} {place}" for place, odd in enumerate(ODD * 2)]
    terminal.result(names, [ODD * 2], numeric=[False] * len(names))
    assert "row 1" in _read(out)
    for name in names:
        assert re.search(rf"^{re.escape(name)} +{re.escape(name.rpartition(' ')[0])} *$", _read(out), re.MULTILINE)


def test_what_would_steer_the_terminal_is_shown():
    terminal, out = _terminal(is_terminal=False)
    terminal.table(["a\x1b[31m"], [["b\x07\nc"]], title="\x1b]0;t\x07")
    assert r"a\x1b[31m" in out.getvalue()
    assert r"b\x07\nc" in out.getvalue()


def test_progress_takes_one_line_of_a_terminal_of_80_columns():
    for done in (0, 999, 1000, 999_999, 12_345_678, 10**15):
        for phase in ("needed", "listing", "deleting"):
            state = VacuumProgress(
                phase=phase, listed=done, kept=done, doomed=done, deleted=done, doomed_bytes=done, deleted_bytes=done
            )
            assert len(counts_line(state)) <= 50
            terminal, out = _terminal(is_terminal=True)
            with terminal.bar(phase) as show:
                show(phase, done, done, counts_line(state))
            assert all(len(line) <= 80 for line in re.split(r"[\r\n]", _read(out)))
            assert counts_line(state) in _read(out), "there is room for all of it"
    terminal, out = _terminal(is_terminal=True)
    with terminal.status("x" * 300):
        pass
    assert max(len(line) for line in re.split(r"[\r\n]", _read(out))) <= 80


# --- the command lines --------------------------------------------------------------------------------------


@pytest.fixture
def odd_table(tmp_path):
    """Brackets in the folder's name, in names and values of columns, in what was done, and in a message."""
    root = tmp_path / "[sync][red]"
    root.mkdir()
    store = LocalStore(str(root))
    fields = [
        {"name": "[sync]", "type": "long", "nullable": True, "metadata": {}},
        {"name": "[/]", "type": "string", "nullable": True, "metadata": {}},
    ]
    path = "%5B%2F%5D=%5Bred%5D/1.parquet"
    file = root / "%5B%2F%5D=%5Bred%5D" / "1.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"[sync]": [1]}), file)
    actions = [
        CommitInfo({"timestamp": 1, "operation": "[red]", "operationParameters": {"[sync]": "[/]"}}),
        Protocol(min_reader_version=1, min_writer_version=2),
        Metadata(
            id="t", schema_string=json.dumps({"type": "struct", "fields": fields}), partition_columns=("[/]",),
            configuration={"[red]": "[/]"},
        ),
        AddFile(
            path=path.replace("%", "%25"), partition_values={"[/]": "[red]"}, size=file.stat().st_size,
            modification_time=1, data_change=True, stats='{"numRecords": 1}',
        ),
    ]  # fmt: skip
    store.put_if_absent("_delta_log/00000000000000000000.json", encode_commit(actions))
    stray = root / "[stray].parquet"
    stray.write_bytes(b"")
    yield str(root)
    DeltaLog.clear_cache()


def _run(capsys, main, *argv: str) -> str:
    with pytest.raises(SystemExit):
        main(argv)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out + err


@pytest.mark.parametrize("is_terminal", [False, True])
def test_commands_show_brackets_of_tables_paths_and_values(capsys, monkeypatch, tmp_path, odd_table, is_terminal):
    monkeypatch.setenv("COLUMNS", "200")
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    log = tmp_path / "[red].log"
    log.write_text("nothing\n")
    expected = {
        ("history", odd_table): ("[red]", "[sync]=[/]"),
        ("detail", odd_table): ("[sync][red]", "[red]=[/]", "[sync]"),
        ("files", odd_table): ("[/]=[red]",),
        ("files", odd_table, "--where", "[red] = 1"): ("[red]",),
        ("files", odd_table, "--where", "`[red]` = 1"): ("[red]", "[sync], [/]"),
        ("generate", odd_table): ("1 manifests",),
        ("vacuum", odd_table, "--dry-run", "--retention-hours", "0", "--no-retention-check"): ("[stray].parquet",),
        ("fsck", odd_table): ("1 files looked for",),
        ("detail", str(tmp_path / "[sync]")): ("[DELTA_TABLE_NOT_FOUND]",),
        ("doctor", str(tmp_path / "[sync]")): ("[sync]",),
        ("doctor", "--log", str(tmp_path / "[no]")): ("[no]",),
        ("sql", "--file", "[red].sql"): ("[red].sql cannot be read",),
        ("[red]",): ("[red]",),
        ("history", "--[red]"): ("[red]",),
        ("sql", "--help"): ("[100 in a table]",),
    }
    for argv, texts in expected.items():
        found = " ".join(_CODES.sub("", _run(capsys, pydelta_cli, *argv)).split())
        for text in texts:
            assert text in found, argv
    found = _CODES.sub("", _run(capsys, catalog_sync, "preview", odd_table, "%5B%2F%5D=%5Bred%5D"))
    assert "[sync]" in found
    for argv in (("preview", odd_table, "[red]"), ("ddl", str(tmp_path / "[red]")), ("[red]",)):
        assert "[red]" in _run(capsys, catalog_sync, *argv), argv


def test_errors_and_help_show_brackets(capsys):
    app = make_app("odd", "Reads [sync] and [red] text.")

    @app.command()
    def fails() -> None:
        """Fails with [/] in its text."""
        raise InvalidArgumentError("It is [/] and [red].", hint="pip install '.[sync]'")

    found = _run(capsys, lambda argv: run_app(app, argv), "--help")
    assert "Fails with [/] in its text." in found
    found = _run(capsys, lambda argv: run_app(app, argv), "fails")
    assert "It is [/] and [red]." in found
    assert "pip install '.[sync]'" in found


def test_the_doctors_cure_has_its_brackets():
    found = Examination(checks=(Check(name="[red]", state="note", says="[/]", cure="pip install '.[sync]'"),))
    assert list(found.lines()) == ["note    [red]: [/]", "        Next: pip install '.[sync]'"]


def test_the_demos_stage_shows_brackets():
    terminal, out = _terminal(is_terminal=False)
    stage = Stage(spark=None, folder=Path(), terminal=terminal)
    with stage.step("[sync] a step"):
        pass
    stage.check("[red] a check", expected=1, found="[/]")
    stage.table("[red]", ["[/]"], [["[sync]"]])
    for text in ("[sync] a step", "[red] a check", "expected 1, found [/]"):
        assert text in out.getvalue()


def test_only_one_module_knows_rich():
    """Elsewhere a text could become markup again."""
    users = []
    for folder in ("pydelta", "catalog_sync", "jobs"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [item.name for item in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if any(name.split(".")[0] == "rich" for name in names):
                    users.append(str(path.relative_to(ROOT)))
                called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if called in ("typer.echo", "typer.secho", "typer.Typer"):
                    users.append(f"{path.relative_to(ROOT)}: {called}")
    assert sorted(set(users)) == ["pydelta/api/console/command_line.py: typer.Typer", "pydelta/api/console/terminal.py"]
