"""Where a local session keeps its tables: where something says so, where they are already, else not here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pydelta.engines.spark.session import places
from pydelta.engines.spark.session.places import CATALOG, METASTORE, WAREHOUSE, local_settings, own_warehouse

DATABASE = "spark.hadoop.javax.jdo.option.ConnectionURL"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder that somebody works in, and a home, both empty; nothing registered to run at the end."""
    folder, home = tmp_path / "my work", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_DATA_HOME", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(places.atexit, "register", lambda *_: None)
    return folder


def test_an_empty_folder_stays_empty(here, tmp_path):
    settings = local_settings({"spark.master": "local[*]"}, environment={})
    folder = Path(settings[WAREHOUSE].removeprefix("file://"))
    assert folder.parent == tmp_path / "home" / ".local" / "share" / "pydelta" / "warehouses"
    assert folder.name.startswith("my_work-")
    assert folder.is_dir()
    assert list(here.iterdir()) == []
    assert local_settings({}, environment={})[WAREHOUSE] == settings[WAREHOUSE], "the same folder the next time"


def test_each_folder_has_a_place_of_its_own_and_one_of_spark_is_kept(here, tmp_path, monkeypatch):
    first = own_warehouse()
    other = tmp_path / "elsewhere" / "my work"
    other.mkdir(parents=True)
    monkeypatch.chdir(other)
    assert own_warehouse() != first
    (other / "spark-warehouse").mkdir()
    assert own_warehouse() == other / "spark-warehouse"
    assert local_settings({}, environment={}) == {}, "as Spark does by itself"


@pytest.mark.parametrize(
    "given",
    [
        {"spark.master": "spark://there:7077"},
        {"spark.master": "yarn"},
        {WAREHOUSE: "/data/warehouse"},
        {CATALOG: "hive", METASTORE: "thrift://there:9083", WAREHOUSE: "s3a://warehouse"},
        {CATALOG: "hive", DATABASE: "jdbc:derby:;databaseName=/d", WAREHOUSE: "/data/warehouse"},
    ],
)
def test_what_the_session_is_told_is_obeyed(given):
    assert local_settings(given, environment={}) == {}


def test_hives_own_database_goes_there_too_unless_one_is_here(here):
    settings = local_settings({CATALOG: "hive"}, environment={})
    folder = settings[WAREHOUSE].removeprefix("file://")
    assert settings[DATABASE] == f"jdbc:derby:;databaseName={folder}/_catalog;create=true"
    (here / "metastore_db").mkdir()
    assert DATABASE not in local_settings({CATALOG: "hive"}, environment={})


def test_what_an_installation_says_is_obeyed(tmp_path):
    conf = tmp_path / "conf"
    conf.mkdir()
    by_folder, by_home = {"SPARK_CONF_DIR": str(conf)}, {"SPARK_HOME": str(tmp_path)}
    assert WAREHOUSE in local_settings({}, environment=by_folder)
    (conf / "spark-defaults.conf").write_text("# a comment\nspark.sql.warehouse.dir   /data/there\n")
    assert local_settings({}, environment=by_folder) == local_settings({}, environment=by_home) == {}
    (conf / "spark-defaults.conf").write_text("spark.master=spark://there:7077\n")
    assert local_settings({}, environment=by_folder) == {}
    assert local_settings({}, environment={"MASTER": "spark://there:7077"}) == {}
    (conf / "spark-defaults.conf").unlink()
    (conf / "hive-site.xml").write_text("<configuration/>")
    assert local_settings({}, environment=by_home) == {}


def test_a_home_that_cannot_be_written_is_no_reason_to_write_here(here, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert own_warehouse().parent == tmp_path / "data" / "pydelta" / "warehouses"
    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "blocked"))
    assert own_warehouse().is_relative_to(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "blocked"))
    folder = own_warehouse()
    assert folder.name.startswith("pydelta-warehouse-")
    folder.rmdir()
    assert list(here.iterdir()) == []


def test_a_place_that_stays_empty_is_removed(monkeypatch):
    registered = []
    monkeypatch.setattr(places.atexit, "register", lambda *call: registered.append(call))
    first = own_warehouse()
    (remove, folder), *_ = registered
    remove(folder)
    assert not first.exists()
    kept = own_warehouse()
    (kept / "t").mkdir()
    remove(kept)
    assert os.listdir(kept) == ["t"]
