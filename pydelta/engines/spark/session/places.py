"""Decide where a local session stores managed tables and names, from its folder and settings.

::

    a cluster, an installation or a setting decides        -> there
    spark-warehouse or metastore_db already exists here    -> there, like Spark
    otherwise                                              -> <your data>/pydelta/warehouses/<folder>-<path digest>

Spark alone would create both in the current folder, whatever that folder is for.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydelta.engines.spark.jvm import Jvm
from pydelta.engines.spark.session.submitted import submitted_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CATALOG", "METASTORE", "WAREHOUSE", "local_settings", "own_catalog", "own_warehouse", "without_derby_log"]

WAREHOUSE: Final = "spark.sql.warehouse.dir"
CATALOG: Final = "spark.sql.catalogImplementation"
METASTORE: Final = "spark.hadoop.hive.metastore.uris"
_DATABASE: Final = "spark.hadoop.javax.jdo.option.ConnectionURL"
_DERBY_LOG: Final = "derby.stream.error.file"
_SPARKS_OWN: Final = "spark-warehouse"
_SPARKS_DATABASE: Final = "metastore_db"


def local_settings(given: Mapping[str, str], *, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return settings that keep a local session from creating folders in the current one; none if already decided.

    Args:
        given: Settings of the session to be created, including its master if set.
        environment: The process environment.
    """
    known = {**_defaults(environment), **submitted_conf(), **given}
    if not known.get("spark.master", "local").startswith("local") or _has_hive_site(environment):
        return {}
    settings: dict[str, str] = {}
    folder = None
    if WAREHOUSE not in known:
        folder = own_warehouse()
        if folder != Path.cwd() / _SPARKS_OWN:
            settings[WAREHOUSE] = folder.as_uri()
    wants_database = known.get(CATALOG) == "hive" and not {METASTORE, _DATABASE} & set(known)
    if wants_database and not (Path.cwd() / _SPARKS_DATABASE).exists():
        settings |= own_catalog(folder or own_warehouse())
    return settings


def own_warehouse() -> Path:
    """Return the folder for managed tables of local sessions in the current folder. It is removed if left empty."""
    current = Path.cwd()
    old = current / _SPARKS_OWN
    if old.is_dir():
        return old
    digest = hashlib.sha256(os.fsencode(current)).hexdigest()[:8]
    name = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', current.name)[:40] or 'root'}-{digest}"
    for parent in _data_folders():
        folder = parent / "warehouses" / name
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            atexit.register(_remove_empty, folder)
            return folder
    folder = Path(tempfile.mkdtemp(prefix="pydelta-warehouse-"))
    atexit.register(_remove_empty, folder)
    return folder


def own_catalog(folder: Path) -> dict[str, str]:
    """Return settings for a catalog that outlives the session: Derby in a folder."""
    return {
        CATALOG: "hive",
        _DATABASE: f"jdbc:derby:;databaseName={folder / '_catalog'};create=true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        # Otherwise Hive refuses new columns of a partitioned table, because it compares columns by position.
        "spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes": "false",
    }


def without_derby_log(spark: SparkSession) -> None:
    """Keep Derby from writing ``derby.log`` in the current folder. Call it before the catalog is used."""
    system = Jvm.of(spark).java_system
    if system.getProperty(_DERBY_LOG) is None and system.getProperty("derby.system.home") is None:
        system.setProperty(_DERBY_LOG, os.devnull)


def _data_folders() -> list[Path]:
    """Return folders for the user's data, best first."""
    found = []
    named = os.environ.get("XDG_DATA_HOME", "")
    if named.startswith("/"):
        found.append(Path(named) / "pydelta")
    with suppress(RuntimeError):  # The user has no home directory.
        found.append(Path.home() / ".local" / "share" / "pydelta")
    return found


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        for empty in (folder, folder.parent, folder.parent.parent):
            empty.rmdir()


def _configuration(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of Spark's configuration files."""
    if "SPARK_CONF_DIR" in environment:
        return Path(environment["SPARK_CONF_DIR"])
    return Path(environment["SPARK_HOME"], "conf") if "SPARK_HOME" in environment else None


def _has_hive_site(environment: Mapping[str, str]) -> bool:
    folder = _configuration(environment)
    return folder is not None and (folder / "hive-site.xml").is_file()


def _defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Read ``spark-defaults.conf`` and the master set in the environment."""
    found = {"spark.master": environment["MASTER"]} if "MASTER" in environment else {}
    folder = _configuration(environment)
    if folder is not None:
        with suppress(OSError):
            for line in (folder / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace").splitlines():
                pair = re.match(r"\s*(spark\.[^\s=:]+)[\s=:]+(.*?)\s*$", line)
                if pair is not None:
                    found[pair[1]] = pair[2]
    return found
