"""pydelta doctor: a machine, a store, a log; each verdict provoked."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from pydelta.api.cli.cli import main
from pydelta.errors import InvalidArgumentError, StoragePermissionError
from pydelta.storage import LocalStore, PutOutcome, register_store
from pydelta.storage.interface import DeleteReport
from pydelta.storage.memory import MemoryStore
from pydelta.tools.doctor import doctor
from pydelta.tools.doctor.doctor import check_environment, check_store, examine
from pydelta.tools.doctor.doctor_log import KNOWN, read_log

SAMPLES = {
    "kerberos-renewer": "java.io.IOException: Can't get Master Kerberos principal for use as renewer",
    "kerberos-ticket": "javax.security.sasl.SaslException: GSS initiate failed",
    "kerberos-principal": "KrbException: Server not found in Kerberos database (7)",
    "kerberos-no-hadoop": "TTransportException: Kerberos principal should have 3 parts: root",
    "clock-skew": "KrbException: Clock skew too great (37)",
    "hive4-server": "org.apache.thrift.TApplicationException: Invalid method name: 'get_table'",
    "symlink-read-as-parquet": "RuntimeException: s3a://w/t/_symlink_format_manifest/manifest is not a Parquet file. "
    "Expected magic number at tail",
    "symlink-read-by-hive": "ClassCastException: org.apache.hadoop.io.Text cannot be cast to "
    "org.apache.hadoop.io.ArrayWritable",
    "hadoop-mixed-versions": 'java.lang.NumberFormatException: For input string: "60s"',
    "hadoop-mixed-classes": "java.lang.NoSuchMethodError: 'void org.apache.hadoop.util.SemaphoredDelegatingExecutor'",
    "s3a-missing": "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
    "s3-credentials": "AmazonS3Exception: InvalidAccessKeyId; secret=abc",
    "trino-missing-file": "Query failed: HIVE_FILE_NOT_FOUND",
    "trino-bad-manifest": "Query failed: HIVE_BAD_DATA: Error parsing symlinks from: s3://w/t",
    "trino-delta-entry": "Query failed: Cannot query Delta Lake table 'lake.orders'",
    "metastore-async-log": "java.lang.NoClassDefFoundError: com/lmax/disruptor/EventFactory",
    "metastore-no-schema": "MetaException(message:Version information not found in metastore.)",
    "tls-not-trusted": "SSLHandshakeException: PKIX path building failed",
    "python-versions": "[PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 13)",
    "worker-lacks-package": "ModuleNotFoundError: No module named 'pydelta.engines.spark'",
    "no-delta-source": "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.",
    "delta-settings-alone": "Cannot find catalog plugin class for catalog 'spark_catalog': "
    "org.apache.spark.sql.delta.catalog.DeltaCatalog.",
    "java-version": "java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main",
}


def run(capsys, *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    return (stopped.value.code or 0, *capsys.readouterr())


# --- logs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [trouble.name for trouble in KNOWN])
def test_each_message_is_known_by_its_name_alone(name):
    (finding,) = read_log(["25/11/21 ERROR: " + SAMPLES[name]]).findings
    assert finding.trouble.name == name
    assert finding.trouble.cause
    assert finding.trouble.cure


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('NumberFormatException: For input string: "24h"', "hadoop-mixed-versions"),
        ("[FAILED_READ_FILE.NO_HINT] Error while reading file file:///t/_symlink_format_manifest/manifest.",
         "symlink-read-as-parquet"),
        ("Could not read footer for file: FileStatus{path=s3a://w/_symlink_format_manifest/day=1/manifest}",
         "symlink-read-as-parquet"),
        ("io.trino.spi.TrinoException: Manifest file from the location [s3://b] contains non-existent path: s3://b/f",
         "trino-missing-file"),
        ("No module named 'pydelta'; ModuleNotFoundError: No module named 'pydelta'", "worker-lacks-package"),
    ],
)  # fmt: skip
def test_other_wordings(line, name):
    assert [finding.trouble.name for finding in read_log([line]).findings] == [name]


@pytest.mark.parametrize(
    "line",
    ['NumberFormatException: For input string: "abc"', "ModuleNotFoundError: No module named 'requests'",
     "wrote _symlink_format_manifest/manifest", "all is well"],
)  # fmt: skip
def test_what_is_no_trouble_or_unknown_is_not_said_to_be_one(line):
    assert read_log([line]).findings == ()


def test_findings_come_in_order_counted_and_repeat_nothing_but_the_message():
    lines = ["start", SAMPLES["s3-credentials"], SAMPLES["hive4-server"], SAMPLES["s3-credentials"]]
    report = read_log(lines)
    assert [(f.trouble.name, f.line, f.count) for f in report.findings] == [
        ("s3-credentials", 2, 2),
        ("hive4-server", 3, 1),
    ]
    assert report.lines == 4
    assert "abc" not in "\n".join(doctor.Examination(log=report).lines())


def test_the_renewer_is_told_all_three_files(tmp_path, capsys):
    log = tmp_path / "job.log"
    log.write_bytes(b"\xff not UTF-8\n" + SAMPLES["kerberos-renewer"].encode())
    code, out, _ = run(capsys, "doctor", "--log", str(log))
    assert code == 4
    for name in ("hive.config.resources", "core-site.xml", "hdfs-site.xml", "yarn-site.xml", "line 2"):
        assert name in out
    assert "PySpark" not in out


def test_a_log_from_a_pipe_as_json(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SAMPLES["hive4-server"].encode())))
    code, out, _ = run(capsys, "doctor", "--log", "-", "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["log"]["findings"][0]["name"]) == (4, False, "hive4-server")


def test_a_log_without_troubles_and_one_that_is_not_there(tmp_path, capsys):
    (tmp_path / "log").write_text("fine\n")
    assert run(capsys, "doctor", "--log", str(tmp_path / "log"))[0] == 0
    code, _, err = run(capsys, "doctor", "--log", str(tmp_path / "none"))
    assert code == 1
    assert "cannot be read" in err


# --- this machine ------------------------------------------------------------------------------------------


def states(checks):
    return {check.name: check.state for check in checks}


def test_this_environment_is_fit_for_the_tests_themselves():
    found = states(check_environment({"PATH": "/usr/bin:/bin", "PYSPARK_PYTHON": sys.executable}))
    assert (found["Python"], found["PySpark"], found["PYSPARK_PYTHON"], found["extra sync"]) == ("ok",) * 4


def test_versions_that_do_not_fit_are_said():
    assert doctor._python((3, 10)).state == "failed"
    assert doctor._pyspark(None).state == "failed"
    assert doctor._pyspark("3.5.1").state == "failed"
    assert doctor._pyspark("4.3.0").state == "ok"


@pytest.fixture
def program(tmp_path):
    def make(name, text):
        (tmp_path / "bin").mkdir(exist_ok=True)
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.mark.parametrize(("major", "state"), [("17", "ok"), ("21", "ok"), ("11", "failed"), ("24", "failed")])
def test_java(program, tmp_path, major, state):
    program("java", f"echo 'openjdk version \"{major}.0.1\" 2025' >&2")
    assert doctor._java({"JAVA_HOME": str(tmp_path)}).state == state


def test_no_java_and_a_java_home_without_one(tmp_path):
    assert doctor._java({"PATH": str(tmp_path)}).says == "there is none"
    assert "JAVA_HOME" in doctor._java({"JAVA_HOME": str(tmp_path)}).says


def test_workers_of_another_python(program):
    other = program("python3", "echo 3.9")
    assert "Python 3.9" in doctor._worker_python({"PATH": str(other.parent)}).says
    missing = doctor._worker_python({"PYSPARK_PYTHON": "/none/python"})
    assert (missing.state, sys.executable in missing.cure) == ("failed", True)


def test_hadoops_jars_of_two_versions(tmp_path):
    for name in ("hadoop-client-api-3.5.0.jar", "hadoop-aws-3.3.4.jar", "hadoop-shaded-guava-1.2.0.jar"):
        (tmp_path / name).touch()
    (check,) = doctor._hadoop_jars(tmp_path)
    assert check.state == "failed"
    assert "hadoop-aws" in check.says
    (tmp_path / "hadoop-aws-3.3.4.jar").unlink()
    assert states(doctor._hadoop_jars(tmp_path)) == {"Hadoop's jars": "ok"}


def test_it_imports_no_pyspark():
    code = "import sys, pydelta.tools.doctor.doctor as d; d.check_environment(); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- stores ------------------------------------------------------------------------------------------------


def test_a_local_directory_is_left_as_it_was(tmp_path):
    found = check_store(str(tmp_path))
    assert states(found) == dict.fromkeys(("write", "put-if-absent", "clock", "delete"), "ok")
    assert "SAFE: 64 writers" in found[1].says
    assert list(tmp_path.iterdir()) == []


def test_no_directory_and_no_uri(tmp_path, capsys):
    assert states(check_store(str(tmp_path / "none"))) == {"store": "failed"}
    assert not (tmp_path / "none").exists()
    code, out, _ = run(capsys, "doctor", str(tmp_path / "none"), "--json")
    assert (code, json.loads(out)["ok"]) == (4, False)
    with pytest.raises(InvalidArgumentError):
        examine("what://bucket/table")


class Careless(MemoryStore):
    """Every writer is told that it made the object."""

    def put_if_absent(self, path, data):
        self.put(path, data)
        return PutOutcome.CREATED


class ReadOnly(MemoryStore):
    def put(self, path, data):
        raise StoragePermissionError("The store refused to write.", hint="Ask for s3:PutObject.")


class Undeletable(MemoryStore):
    def delete_many(self, paths):
        return DeleteReport(deleted=0, failed=tuple((path, "access denied") for path in paths), denied=True)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Careless, ("ok", "failed", "ok", "ok")),
        (ReadOnly, ("failed", "skipped", "skipped", "skipped")),
        (Undeletable, ("ok", "ok", "ok", "failed")),
    ],
)
def test_stores_that_are_not_fit(kind, expected):
    scheme = f"doctor{kind.__name__.lower()}"
    register_store(scheme, lambda uri, options: kind(f"memory://{scheme}"))
    checks = check_store(f"{scheme}://bucket/t")
    assert tuple(check.state for check in checks) == expected
    (bad,) = (check for check in checks if check.state == "failed")
    assert bad.cure
    if kind is Careless:
        assert bad.says.startswith("UNSAFE: of 64 writers")


@pytest.mark.parametrize(
    ("apart", "state"), [(0, "ok"), (30, "note"), (-30, "note"), (400, "failed"), (-400, "failed")]
)
def test_clocks_that_differ(tmp_path, apart, state):
    now = LocalStore(f"file://{tmp_path}")
    now.put("x", b"")
    theirs = now.head("x").modification_time_ms / 1000
    check = doctor._skew(theirs, theirs + apart - 0.1, theirs + apart + 0.1)
    assert check.state == state
    if apart:
        assert ("behind" if apart > 0 else "ahead of") in check.says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "spark.sql.catalog.spark_catalog org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "programs that import nothing",
        ),
        ("spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension", "programs that import nothing"),
        (
            "spark.jars.packages io.delta:delta-spark_2.13:4.4.0\n"
            "spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension",
            "loads the JVM engine",
        ),
        ("# spark.sql.extensions io.delta.sql.DeltaSparkSessionExtension", None),
        ("spark.master local[2]", None),
        (None, None),
    ],
)
def test_default_settings_that_name_the_other_engine_are_noted_with_what_programs_need(tmp_path, text, says):
    if text is not None:
        (tmp_path / "spark-defaults.conf").write_text(text)
    checks = check_environment({"SPARK_CONF_DIR": str(tmp_path)})
    found = [check for check in checks if check.name == "Delta's settings"]
    assert [says in check.says and bool(check.cure) for check in found] == ([] if says is None else [True])
