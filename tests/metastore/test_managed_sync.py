"""Tables that the catalog owns and that are synced after every commit, the first one among them: they stay its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def found(metastore_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("managed")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    script = Path(__file__).with_name("managed_session.py")
    done = subprocess.run(
        [sys.executable, str(script), metastore_server.uri, f"managed_{uuid.uuid4().hex[:8]}", str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.ci
@pytest.mark.parametrize("way", ["by_sql", "selected", "replaced", "cloned"])
def test_a_table_without_a_location_is_the_catalogs_own_and_its_files_go_with_it(found, way):
    kind, external, rows, has_twin, there, dropped, left, kind_again, rows_again = found[way]
    assert (kind, external, rows, has_twin) == ("MANAGED_TABLE", None, 2, True)
    assert (there, dropped, left) == (True, True, False)
    assert (kind_again, rows_again) == ("MANAGED_TABLE", 2), "and it can be made again"


def test_a_table_with_a_location_keeps_its_files(found):
    assert found["external"] == ["EXTERNAL_TABLE", "TRUE", 2, True, True, True, True]
