"""The tutorial of Kafka: its records and its job, at this folder's broker. The page as it stands runs in the stack."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tutorials"))
from tutorial_pages import TUTORIALS, blocks_of, commands_of, matches

PAGE = (TUTORIALS / "stream-from-kafka.md").read_text()


def commands():
    return [command for block in blocks_of(PAGE) if block.kind == "console" for command in commands_of(block)]


def arguments_of(line, stream):
    """The job's arguments on the page, with the broker, the topic and the places of this test."""
    given = shlex.split(re.search(r'ARGS="([^"]*)"', line)[1])
    here = dict(zip(stream.arguments[::2], stream.arguments[1::2], strict=True))
    values = dict(zip(given[::2], given[1::2], strict=True))
    return [text for name, value in values.items() for text in (name, here.get(name, value))]


def test_the_records_of_the_page_give_the_lines_of_the_page(stream):
    (sent,) = [command.line for command in commands() if command.line.startswith("printf")]
    stream.send(*shlex.split(sent[: sent.index(" | ")])[2:])
    jobs = [command for command in commands() if command.line.startswith("make submit JOB=ingest_stream ")]
    assert len(jobs) == 2
    for command in jobs:
        code, lines = stream.session.job("ingest_stream", *arguments_of(command.line, stream))
        assert code == 0, lines
        assert matches(command.output, "\n".join(map(json.dumps, lines))), lines
    rows = stream.rows()
    assert f'"{len(rows)}","{sum(row["amount"] for row in rows):.2f}"' in PAGE
