"""The settings that Trino starts with: parts of ``trino_conf/`` that its image joins. The server is a stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "trino_conf"
S3, HDFS = "s3a://", "hdfs://namenode:8020/"


@pytest.fixture
def start(tmp_path):
    """Start Trino with a copy of the settings; gives the folder that it made, and notes the server's words."""
    kept, made = tmp_path / "trino_conf", tmp_path / "made"
    shutil.copytree(SETTINGS, kept)
    (tmp_path / "launcher").write_text(f'#!/bin/sh\necho "$@ $TRINO_CATALOGS" >{tmp_path}/words\n')
    (tmp_path / "launcher").chmod(0o755)

    def run(root=S3, secure="no"):
        command = [ROOT / "images" / "trino" / "bin" / "trino-server", kept, made]
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "STORE_ROOT": root, "SECURE": secure}
        subprocess.run(command, env=env, capture_output=True, check=True)
        return made

    run.kept, run.words = kept, tmp_path / "words"
    return run


def lines(path):
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def test_the_server_starts_with_the_files_that_were_joined(start):
    made = start()
    assert start.words.read_text().split() == [
        *("--etc-dir", str(start.kept), "--config", f"{made}/config.properties"),
        *("--jvm-config", f"{made}/jvm.config", "--data-dir", "/data", "run", f"{made}/catalog"),
    ]
    assert "catalog.config-dir=${ENV:TRINO_CATALOGS}" in lines(made / "config.properties")


@pytest.mark.parametrize("name", ["config.properties", "jvm.config"])
def test_a_secure_trino_has_all_that_the_other_has_and_its_further_lines(start, name):
    plain = lines(start() / name)
    assert plain == lines(SETTINGS / name)
    secure = lines(start(secure="yes") / name)
    assert secure == plain + lines(SETTINGS / "secure" / name)
    names = [line.partition("=")[0] for line in secure]
    assert len(set(names)) == len(names), "no setting is there twice"


@pytest.mark.parametrize(("root", "store", "other"), [(S3, "s3", "hdfs"), (HDFS, "hdfs", "s3")])
def test_the_catalogs_of_tables_reach_the_store_that_the_stack_has(start, root, store, other):
    for name in ("delta", "hive"):
        text = (start(root) / "catalog" / f"{name}.properties").read_text()
        assert (SETTINGS / "catalog" / f"{name}.properties").read_text() in text
        assert (SETTINGS / "store" / f"{store}.properties").read_text() in text
        assert (SETTINGS / "store" / f"{other}.properties").read_text() not in text


def test_a_catalog_of_one_s_own_stays_as_it_is_unless_it_reads_the_stack_s_tables(start):
    own = {
        "numbers": "connector.name=tpch",
        "elsewhere": "connector.name=hive\nhive.metastore.uri=thrift://other:9083\nfs.native-s3.enabled=true",
        "ours": "connector.name=hive\nhive.metastore.uri=thrift://hive-metastore:9083",
    }
    for name, text in own.items():
        (start.kept / "catalog" / f"{name}.properties").write_text(text)
    made = {path.stem: lines(path) for path in (start() / "catalog").iterdir()}
    assert set(made) == {*own, "delta", "hive", "iceberg"}
    for name in ("numbers", "elsewhere"):
        assert made[name] == own[name].splitlines()
    assert made["ours"] == own["ours"].splitlines() + lines(SETTINGS / "store" / "s3.properties")


def test_a_catalog_that_was_taken_away_is_gone_at_the_next_start(start):
    start()
    (start.kept / "catalog" / "delta.properties").unlink()
    assert {path.name for path in (start() / "catalog").iterdir()} == {"hive.properties", "iceberg.properties"}
