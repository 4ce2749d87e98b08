"""What ``make up`` looks at before it starts anything; Docker itself is a stand-in that answers what a case needs."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
import stack_files
from leaks import secret

ROOT = Path(__file__).resolve().parents[2]
GIB = 1024**3

STAND_IN = """#!/bin/sh
case "$*" in
  "info "*) {info} ;;
  "compose version"*) {compose} ;;
  "ps -q"*) ;;
  "ps -a "*working_dir*) echo "{started_from}" ;;
  "ps "*) echo "{ports}" ;;
  "volume ls"*) echo "{volumes}" ;;
  "image inspect"*) exit {no_images} ;;
  *) echo "unexpected: docker $*" >&2; exit 99 ;;
esac
"""


@pytest.fixture
def preflight(tmp_path):
    """Runs the script without a ``.env``, with a Docker that is as told; gives its exit code and what it said."""
    scripts = tmp_path / "project" / "scripts"
    shutil.copytree(ROOT / "scripts", scripts)
    shutil.copy(ROOT / "pyproject.toml", scripts.parent)

    def run(
        engine="28.2.2",
        memory=16 * GIB,
        compose="echo 2.40.0",
        info=None,
        ports="",
        no_images=0,
        docker=True,
        volumes="",
        started_from="",
        **settings,
    ):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        if docker:
            told = info or f"echo '{engine}|{memory}|{tmp_path}'"
            stand_in = folder / "docker"
            stand_in.write_text(
                STAND_IN.format(
                    info=told,
                    compose=compose,
                    ports=ports,
                    volumes=volumes,
                    no_images=no_images,
                    started_from=started_from,
                )
            )
            stand_in.chmod(0o755)
        ports_free = {
            f"{name}_PORT": str(_free_port())
            for name in ("MINIO", "METASTORE", "TRINO", "SPARK_UI", "UI", "KAFKA", "THRIFT", "CONNECT")
        }
        # the machine's own disk and memory are not this test's matter, unless a case asks for them
        limits = {"LAKEHOUSE_MIN_DISK_GIB": "0", "LAKEHOUSE_MIN_MEMORY_GIB": "2"}
        done = subprocess.run(
            [scripts / "stack-preflight"],
            env={"PATH": f"{folder}:{_tools(tmp_path)}", "LAKEHOUSE_PROJECT": "none"} | ports_free | limits | settings,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def _tools(tmp_path):
    """A PATH with the ordinary tools and without the machine's own Docker."""
    folder = tmp_path / "tools"
    folder.mkdir(exist_ok=True)
    for name in ("bash", "awk", "df", "grep", "sort", "head", "tail", "uniq", "wc", "dirname", "cat", "env"):
        target = next(Path(place, name) for place in os.environ["PATH"].split(":") if Path(place, name).exists())
        if not (folder / name).exists():
            (folder / name).symlink_to(target)
    return folder


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_machine_that_fits_passes_in_silence(preflight):
    assert preflight() == (0, "")


def test_a_stack_that_another_clone_started_is_not_taken_over(preflight, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    assert preflight(started_from=other) == (0, ""), "a folder that is no clone any more holds nothing back"
    (other / "docker-compose.yml").touch()
    code, said = preflight(started_from=other)
    assert code == 1
    assert f"The stack (none) was started from {other}, not from here." in said
    assert "LAKEHOUSE_PROJECT=" in said
    assert said.rstrip().endswith("Nothing was started.")


def test_no_docker(preflight):
    code, said = preflight(docker=False)
    assert code == 1
    assert "docker was not found" in said
    assert "install Docker Engine 20.10" in said


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("echo 'Cannot connect to the Docker daemon' >&2; exit 1", "does not answer"),
        ("echo 'permission denied while trying to connect' >&2; exit 1", "group docker"),
    ],
)
def test_an_engine_that_does_not_answer(preflight, answer, expected):
    code, said = preflight(info=answer)
    assert code == 1
    assert expected in said
    assert said.rstrip().endswith("Nothing was started.")


def test_an_old_engine_and_an_old_compose_are_said_together(preflight):
    code, said = preflight(engine="19.03.8", compose="echo 2.2.3")
    assert code == 1
    assert "engine is 19.03.8" in said
    assert "Compose is 2.2.3" in said


def test_compose_is_missing(preflight):
    code, said = preflight(compose="exit 1")
    assert code == 1
    assert "no Compose plugin" in said


def test_too_little_memory(preflight):
    code, said = preflight(memory=4 * GIB, LAKEHOUSE_MIN_MEMORY_GIB="6")
    assert code == 1
    assert "Docker has 4 GiB of memory; the stack needs 6 GiB" in said


def test_too_little_disk(preflight):
    code, said = preflight(LAKEHOUSE_MIN_DISK_GIB="900000")
    assert code == 1
    assert "900000 GiB are needed" in said
    assert "docker system prune" in said


def test_a_port_that_is_taken_is_named_with_its_variable(preflight):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = preflight(TRINO_PORT=str(port))
        assert code == 1
        assert f"Port {port} of 127.0.0.1 (TRINO_PORT) is taken" in said
        assert preflight(TRINO_PORT=str(port), ports=f"127.0.0.1:{port}->8080/tcp") == (0, "")


@pytest.mark.parametrize("port", ["eighty", "0", "70000"])
def test_a_port_that_is_none(preflight, port):
    code, said = preflight(MINIO_PORT=port)
    assert code == 1
    assert f"MINIO_PORT is '{port}'." in said
    assert "a number from 1024 to 65535" in said


@pytest.fixture
def env_file(preflight, tmp_path):
    """Runs the script with a ``.env`` of some lines."""

    def run(*lines, end="\n", **settings):
        (tmp_path / "project" / ".env").write_text("".join(f"{line}{end}" for line in lines), newline="")
        return preflight(**settings)

    return run


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("SPARK_CPUS=two", "SPARK_CPUS", "a number of processors"),
        ("SYNC_EVERY_SECONDS=0", "SYNC_EVERY_SECONDS", "a number, 1 or more"),
        ("SYNC_EVERY_SECONDS=1m", "SYNC_EVERY_SECONDS", "a number, 1 or more"),
        ("INVENTORY_AT=25:00", "INVENTORY_AT", "a time of day in UTC"),
        ("VACUUM_AT=1am", "VACUUM_AT", "or never"),
        ("HISTORY_KEEP=7", "HISTORY_KEEP", "a number and a unit"),
        ("MAINTAIN_BYTES_PER_DAY=lots", "MAINTAIN_BYTES_PER_DAY", "a number of bytes"),
        ("MAINTAIN_VACUUM=yes", "MAINTAIN_VACUUM", "one of: off lite inventory full"),
        ("TRINO_DELTA_SECURITY=allow", "TRINO_DELTA_SECURITY", "one of: read-only allow-all"),
        ("STACK_PROFILES=kafka,sevre", "STACK_PROFILES", "any of kafka serve"),
        ("SPARK_WORKER_CORES=0", "SPARK_WORKER_CORES", "a number, 1 or more"),
        ("SPARK_WORKER_MEMORY=512m", "SPARK_WORKER_MEMORY", "1024 MiB or more"),
        ("SPARK_WORKER_MEMORY=4", "SPARK_WORKER_MEMORY", "such as 1600m or 4g"),
        ("KAFKA_PORT=99999", "KAFKA_PORT", "a number from 1024 to 65535"),
    ],
)
def test_a_value_that_is_not_of_its_kind_is_named_with_what_it_may_be(env_file, line, name, expected):
    code, said = env_file(line, **({name: line.partition("=")[2]} if name.endswith("_PORT") else {}))
    assert code == 1
    assert f"- {name} is '{line.partition('=')[2]}'." in said
    assert expected in said


def test_values_as_compose_takes_them_are_right(env_file):
    lines = [
        "# a comment", "", "  export SYNC_EVERY_SECONDS = 30   # half a minute", "SPARK_CPUS='1.5'",
        'INVENTORY_AT="02:30"', "MONITOR_KEEP=30d", "MAINTAIN_BYTES_PER_DAY=500g", "VACUUM_AT=never",
        "S3_SECRET_KEY='a$b#c'", "STACK_PROFILES=",
        "COMPOSE_PARALLEL_LIMIT=1", "MY_OWN_THING=1", "STORE_SPARK_KEY=spark",
    ]  # fmt: skip
    assert env_file(*lines) == (0, "")


def test_all_that_is_wrong_with_env_is_said_at_once(env_file):
    code, said = env_file("SYNC_EVRY_SECONDS=30", "SPARK_CPUS=x", "just words", f"POSTGRES_PASSWORD={secret('a')}$x")
    assert code == 1
    assert "SYNC_EVRY_SECONDS in .env is not a setting of the stack." in said
    assert "did you mean SYNC_EVERY_SECONDS?" in said
    assert "SPARK_CPUS is 'x'." in said
    assert "Line 3 of .env is not a setting." in said
    assert "POSTGRES_PASSWORD in .env has a $, which Compose takes for a variable." in said
    assert secret("a") not in said


def test_line_ends_of_windows_are_named_and_confuse_nothing_else(env_file):
    code, said = env_file("SPARK_CPUS=2", "# words", end="\r\n")
    assert code == 1
    assert [line for line in said.splitlines() if line.startswith("- ")] == [
        "- .env has the line ends of Windows (CR LF)."
    ]


def test_every_setting_that_compose_and_the_scripts_read_is_in_the_list():
    listed = {line.split()[0] for line in (ROOT / "scripts/stack-settings").read_text().splitlines() if line[:1] != "#"}
    compose = "".join(path.read_text() for path in stack_files.FILES)
    scripts = "".join(
        path.read_text() for path in (ROOT / "scripts").glob("*") if path.name.startswith(("stack-", "make-env"))
    )
    handed_on = {
        name
        for said in stack_files.services().values()
        for name, value in said.get("environment", {}).items()
        if value is None
    }
    assert len(handed_on) > 20
    read = (
        set(re.findall(r"\$\{([A-Z0-9_]+)", compose)) | set(re.findall(r"\bsetting ([A-Z0-9_]+)", scripts)) | handed_on
    )
    made = {
        name
        for name in read
        if re.match(
            r"STORE_|SPARK_WORKER_LIMIT|CDC_IS_INSIDE|BI_SHOP|UI_SERVICES|SPARK_EVENT_LOG|METASTORE_TLS|TRINO_LISTENS|TRINO_SCHEME",
            name,
        )
    }
    assert read - made - {"NAME"} <= listed
    template = re.findall(r"^#?([A-Z0-9_]+)=", (ROOT / "scripts/make-env").read_text(), re.MULTILINE)
    users = {name for name in template if re.fullmatch(r"S3_[A-Z]+_(ACCESS|SECRET)_KEY", name)}
    assert set(template) - users - {"SECURE"} <= listed


def test_one_port_for_two_services(preflight):
    port = str(_free_port())
    code, said = preflight(MINIO_PORT=port, TRINO_PORT=port)
    assert code == 1
    assert f"Port {port} is set for two services" in said


def test_a_profile_that_there_is_not_is_named_with_those_there_are(preflight):
    code, said = preflight(PROFILES="kafak")
    assert code == 1
    assert "There is no profile kafak" in said
    assert "kafka" in said.replace("kafak", "")


def test_maintenance_by_airflow_needs_airflow(preflight):
    code, said = preflight(MAINTENANCE_BY="airflow")
    assert code == 1
    assert "MAINTENANCE_BY is airflow, but the stack has no Airflow" in said
    assert "Next: add airflow to PROFILES" in said
    port = str(_free_port())
    assert preflight(MAINTENANCE_BY="airflow", PROFILES="airflow", AIRFLOW_PORT=port) == (0, "")


@pytest.mark.parametrize(
    ("profile", "name"),
    [("kafka", "KAFKA_PORT"), ("serve", "THRIFT_PORT"), ("serve", "CONNECT_PORT"), ("airflow", "AIRFLOW_PORT")],
)
def test_the_port_of_a_profile_counts_where_it_was_asked_for(preflight, profile, name):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert preflight(**{name: port}) == (0, "")
        code, said = preflight(**{name: port}, PROFILES=profile)
        both = preflight(**{name: port}, PROFILES="kafka,serve,airflow")
    assert code == both[0] == 1
    assert f"Port {port} of 127.0.0.1 ({name}) is taken" in said
    assert said == both[1]


def test_a_store_that_there_is_not_is_named_with_those_there_are(preflight):
    code, said = preflight(STORE="hfds")
    assert code == 1
    assert "There is no store hfds" in said
    assert "minio versity hdfs external" in said


@pytest.mark.parametrize(
    ("volume", "held"), [("none_minio-data", "minio"), ("none_hdfs-name", "hdfs"), ("none_versity-data", "versity")]
)
def test_a_stack_that_has_tables_in_one_store_is_not_started_with_another(preflight, volume, held):
    volumes = f"{volume}\nnone_postgres-data"
    assert preflight(volumes=volumes) == (0, "")
    assert preflight(volumes=volumes, STORE=held) == (0, "")
    other = "hdfs" if held == "minio" else "minio"
    code, said = preflight(volumes=volumes, STORE=other)
    assert code == 1
    assert f"The stack (none) keeps its tables in the store {held}, not in {other}." in said
    assert "LAKEHOUSE_PROJECT" in said
    assert f"make reset, which deletes these tables, then make up STORE={other}" in said


OWN_S3 = {
    "STORE": "external",
    "S3_ENDPOINT": "https://s3.example.com",
    "S3_ACCESS_KEY": "key",
    "S3_SECRET_KEY": secret("store"),
}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"S3_ENDPOINT": ""}, "S3_ENDPOINT is ''"),
        ({"S3_ENDPOINT": "s3.example.com"}, "S3_ENDPOINT is 's3.example.com', which is not the address"),
        ({"S3_ENDPOINT": "https://me:mine@s3.example.com"}, "which is not the address of an S3 service"),
        ({"S3_ACCESS_KEY": ""}, "S3_ACCESS_KEY is not set"),
        ({"S3_SECRET_KEY": ""}, "S3_SECRET_KEY is not set"),
        ({"S3_ROOT": "/data"}, "S3_ROOT is '/data'"),
        ({"S3_PATH_STYLE": "yes"}, "S3_PATH_STYLE is 'yes'"),
        ({"SPARK_DROPS": "yes"}, "SPARK_DROPS is 'yes'"),
    ],
)
def test_an_s3_of_one_s_own_lacks_something(preflight, settings, expected):
    code, said = preflight(**OWN_S3 | settings)
    assert code == 1
    assert expected in said
    assert "set it in .env" in said
    assert secret("store") not in said


@pytest.mark.parametrize(("given", "missing"), [("ACCESS", "SECRET"), ("SECRET", "ACCESS")])
def test_half_a_key_of_a_component_is_said(preflight, given, missing):
    code, said = preflight(**OWN_S3, **{f"S3_TRINO_{given}_KEY": "half-a-key"})
    assert code == 1
    assert f"S3_TRINO_{given}_KEY is set, but S3_TRINO_{missing}_KEY is not." in said
    assert "half-a-key" not in said


@pytest.mark.parametrize("root", ["s3a://", "s3a://acme-", "s3a://acme/lake/", ""])
def test_an_s3_of_one_s_own_has_no_port_here(preflight, root):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert preflight(**OWN_S3, S3_ROOT=root, MINIO_PORT=port) == (0, "")
        assert preflight(STORE="hdfs", MINIO_PORT=port) == (0, "")
        assert preflight(STORE="versity", MINIO_PORT=port)[0] == 1


def test_a_stack_with_tables_elsewhere_stays_with_them(preflight):
    code, said = preflight(volumes="none_postgres-data", **OWN_S3 | {"STORE": "minio"})
    assert code == 1
    assert "keeps its tables in the store external, not in minio" in said
    assert "make reset, which forgets these tables and leaves their files" in said
