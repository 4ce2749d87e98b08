"""The Iceberg entry by every interface: the command line, and the table without a session."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest

import pydelta
from pydelta.api.cli.entry import main
from pydelta.commands.generate import generation
from pydelta.errors import InvalidArgumentError
from tests.iceberg.readers import duckdb_rows, of_arrow, pyiceberg_rows

ROWS = pa.table({"id": [1, 2], "day": ["a", None]})


@pytest.fixture
def table(tmp_path):
    return pydelta.LocalTable.create(str(tmp_path / "t"), ROWS)


def run(capsys, *arguments):
    code = 0
    try:
        main(list(arguments))
    except SystemExit as stopped:
        code = stopped.code
    found = capsys.readouterr()
    return code, found.out, found.err


def test_the_command_line_publishes_and_says_where(capsys, table, tmp_path):
    path = str(tmp_path / "t")
    code, out, _ = run(capsys, "generate", path, "--mode", "iceberg")
    assert code == 0
    assert out.startswith("Version 0: 1 files added, 0 removed")
    location = out.splitlines()[-1]
    assert pyiceberg_rows(location) == duckdb_rows(location) == of_arrow(table.scan())
    code, out, _ = run(capsys, "generate", path, "--mode", "iceberg")
    assert (code, out) == (0, f"The Iceberg entry is already at version 0.\n{location}\n")
    table.append(ROWS)
    row = json.loads(run(capsys, "generate", path, "--mode", "ICEBERG", "--json")[1])
    assert (row["version"], row["previous"], row["filesAdded"], row["full"]) == (1, 0, 1, False)
    assert pyiceberg_rows(row["location"]) == of_arrow(table.scan())
    row = json.loads(run(capsys, "generate", path, "--mode", "iceberg", "--full", "--json")[1])
    assert (row["version"], row["filesAdded"], row["reason"]) == (1, 0, "it was asked for")
    assert pyiceberg_rows(row["metadataLocation"]) == of_arrow(table.scan())


def test_the_local_table_publishes(table):
    result = table.generate(mode="iceberg")
    assert result.entry.version == 0
    assert pyiceberg_rows(result.entry.location) == of_arrow(table.scan())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "hudi"], "GENERATE has no mode 'hudi'"),
        (["--mode", "iceberg", "--where", "day = 'a'"], "it takes no condition"),
        (["--mode", "iceberg", "--verify"], "--verify compares symlink manifests"),
    ],
)
def test_what_cannot_be_asked_for(capsys, table, tmp_path, arguments, message):
    code, _, err = run(capsys, "generate", str(tmp_path / "t"), *arguments)
    assert code != 0
    assert message in err


def test_an_unknown_mode_has_spark_s_condition():
    with pytest.raises(InvalidArgumentError, match="has no mode") as caught:
        generation("nope")
    assert caught.value.code == "DELTA_MODE_NOT_SUPPORTED"


def test_without_pyiceberg_the_extra_is_named(table, tmp_path):
    program = (
        "import sys; sys.modules['pyiceberg'] = None\n"
        "import pydelta, catalog_sync\n"
        "from pydelta.manifests.iceberg import read_entry, IcebergOptions\n"
        "from pydelta.api.cli.entry import main\n"
        "raise SystemExit(main(['generate', sys.argv[1], '--mode', 'iceberg']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install 'pydelta-lakehouse[iceberg]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_importing_pydelta_does_not_import_pyiceberg():
    program = "import sys, pydelta, pydelta.manifests.iceberg, catalog_sync; sys.exit('pyiceberg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
