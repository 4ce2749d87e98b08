"""Fill the matrix: ``python -m matrix --python PEER [--folder FOLDER] [--record]``.

Tables are written by this engine, the reference engine, delta-rs and Delta Kernel, and read by them and DuckDB, by further
engines in an environment of their packages, and through an Iceberg entry. ``--record`` keeps the answers in
``interop.json``, of which ``docs/reference/interop.md`` is made; without it they are compared with what is kept.
``--reader kernel`` asks one reader, and the kept answers of the others stay. ``--trino FILE`` adds what Trino answered
(``python -m matrix.trino``), ``--iceberg FILE`` what other engines answered through the entry
(``python -m matrix.iceberg_stack``, ``matrix.iceberg_spark``); without them the kept answers of these stay.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from matrix.corpus import read_corpus
from matrix.kernel import read_by_kernel
from matrix.kernel_writer import write_by_kernel
from matrix.libraries import READERS, read, write_by_delta_rs
from matrix.report import ASKED_APART, FURTHER, KEPT, PAGE, page
from tests.suites.environment import environment

HERE = Path(__file__).resolve().parent


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m matrix", description="What each engine writes, read by all.")
    parser.add_argument("--python", required=True, help="the interpreter of the reference engine's environment")
    parser.add_argument("--folder", type=Path, help="where the tables stay; without it they are deleted")
    parser.add_argument("--record", action="store_true", help="keep the answers, and make the page of them")
    parser.add_argument("--trino", type=Path, help="what Trino answered, of a run over the same tables")
    parser.add_argument("--iceberg", type=Path, help="what other engines answered through Iceberg entries of them")
    parser.add_argument("--reader", action="append", help="ask this one, or these; without it all")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="interop-") as name:
        folder = asked.folder or Path(name)
        told = filled(folder, asked.python, asked.reader)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"written": {}, "read": {}, "corpus": {}}
    stay = ASKED_APART if asked.reader is None else kept["read"]
    told["read"] = {reader: read for reader, read in kept["read"].items() if reader in stay} | told["read"]
    told["corpus"] = read_corpus() if asked.reader is None or "kernel" in asked.reader else kept["corpus"]
    if asked.trino:
        told["read"]["trino"] = json.loads(asked.trino.read_text())
    if asked.iceberg:
        told["read"] |= json.loads(asked.iceberg.read_text())
    if asked.record:
        KEPT.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        PAGE.write_text(page(told))
        return 0
    changed = differing(told, kept)
    print("\n".join(changed) if changed else f"{len(told['written']['ours'])} tables: every answer is as it is kept.")
    return int(bool(changed))


def filled(folder: Path, python: str, readers: list[str] | None = None) -> dict[str, Any]:
    """Write and read; all answers by ``written`` → writer → name and ``read`` → reader → writer → name.

    Args:
        folder: Where the tables go.
        python: The interpreter of the reference engine's environment.
        readers: The names of those that are asked; without it all are.
    """
    known = _readers(folder, python)
    if unknown := set(readers or ()) - known.keys():
        raise SystemExit(f"There is no reader {', '.join(sorted(unknown))}. Those there are: {', '.join(known)}.")
    folder.mkdir(parents=True, exist_ok=True)
    written = {"ours": _spark(sys.executable, "ours", "write", folder)}
    written["reference"] = _spark(python, "reference", "write", folder)
    (folder / "delta-rs").mkdir(exist_ok=True)
    written["delta-rs"] = write_by_delta_rs(folder / "delta-rs")
    (folder / "kernel").mkdir(exist_ok=True)
    written["kernel"] = write_by_kernel(folder / "kernel")
    return {
        "written": written,
        "read": {name: ask() for name, ask in known.items() if readers is None or name in readers},
    }


def _readers(folder: Path, python: str) -> dict[str, Callable[[], Any]]:
    """What is called to read all tables of the folder, by the reader's name."""

    def frames(name: str) -> Any:
        further = str(environment("readers", HERE / "readers.txt", with_project=True))
        return _answers([further, str(HERE / "others.py"), name, str(folder)], folder, name)

    known: dict[str, Callable[[], Any]] = {
        "ours": partial(_spark, sys.executable, "ours", "read", folder),
        "reference": partial(_spark, python, "reference", "read", folder),
        "kernel": partial(read_by_kernel, folder),
    }
    known |= {name: partial(read, name, folder) for name in READERS}
    return known | {name: partial(frames, name) for name in FURTHER}


def differing(told: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Say which answers are others than those that are kept; words of an error may change, what happens may not."""
    found = []
    for writer, names in told["written"].items():
        for name, words in names.items():
            if bool(words) != bool(kept["written"].get(writer, {}).get(name, "never asked")):
                found.append(f"{writer} writes {name}: {words or 'yes'}")
    for reader, writers in told["read"].items():
        for writer, names in writers.items():
            for name, words in names.items():
                before = kept["read"].get(reader, {}).get(writer, {}).get(name, "never asked")
                if words.partition(":")[0] != before.partition(":")[0]:
                    found.append(f"{reader} reads {name} by {writer}: {words}, and was: {before}")
    for expected, tables in told["corpus"].items():
        for name, words in tables.items():
            before = kept["corpus"].get(expected, {}).get(name, "never asked")
            if words.partition(":")[0] != before.partition(":")[0]:
                found.append(f"kernel reads {name} of the corpus: {words}, and was: {before}")
    return found


def _spark(python: str, engine: str, action: str, folder: Path) -> Any:
    return _answers([python, str(HERE / "spark_side.py"), engine, action, str(folder)], folder, f"{engine}-{action}")


def _answers(command: list[str], folder: Path, name: str) -> Any:
    """Run a program of this folder, whose last argument is the file of its answers."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_"))}
    variables |= {"PYSPARK_PYTHON": command[0], "SPARK_LOCAL_IP": "127.0.0.1"}
    out = folder / f"{name}.json"
    done = subprocess.run([*command, str(out)], env=variables, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stdout[-1000:]}{done.stderr[-3000:]}")
    return json.loads(out.read_text())


if __name__ == "__main__":
    sys.exit(main())
