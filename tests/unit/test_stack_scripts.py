"""What the stack's scripts hand to Docker, and what they say; Docker is a stand-in that notes what it was given."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from leaks import secret

ROOT = Path(__file__).resolve().parents[2]

STAND_IN = """#!/bin/sh
case "$*" in
  "compose ps --format"*) echo "${HEALTH-healthy}" ;;
  "ps -aq"*compose.service=connect*) echo "${CAPTURE:-}" ;;
  "ps -aq"*compose.service=superset* | "ps -aq"*compose.service=bi-database*) echo "${CHARTS:-}" ;;
  "ps -aq"*compose.service=*) echo "${CONTAINERS_OF_SERVICE-one}" | sed '/^none$/d' ;;
  "ps -aq"*) echo "${CONTAINERS-one}" ;;
  "ps -a "*working_dir*) echo "${STARTED_FROM:-}" ;;
  "volume ls"*) echo "${VOLUMES:-}" ;;
  "inspect --format {{.RestartCount}}"*) echo "${RESTARTS:-0}" ;;
  "volume inspect"*) exit "${VOLUME_IS_THERE:-0}" ;;
  *) printf '%s\\0' "$@" >"$NOTED"; exit "${CODE:-0}" ;;
esac
"""


@pytest.fixture
def project(tmp_path):
    """Runs a command in a copy of what the scripts need, with its own ``.env``: code, output, Docker's words."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "trino_conf", folder / "trino_conf")
    shutil.copytree(ROOT / "images/presto/conf", folder / "images/presto/conf")
    (folder / "jobs").mkdir()
    shutil.copy(ROOT / "jobs" / "schedule.conf", folder / "jobs")
    (folder / ".env").write_text("S3_SECRET_KEY=of-the-store-hush-q7Zk\nLAKEHOUSE_PROJECT=tried\n")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "docker").write_text(STAND_IN)
    (tools / "docker").chmod(0o755)
    noted = tmp_path / "noted"

    def run(*command, **env):
        noted.unlink(missing_ok=True)
        done = subprocess.run(
            command,
            cwd=folder,
            env={"PATH": f"{tools}:{os.environ['PATH']}", "NOTED": str(noted)} | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        words = noted.read_text().split("\0")[:-1] if noted.exists() else []
        return done.returncode, done.stdout + done.stderr, words

    run.folder = folder
    return run


HARD = """SELECT "a", `b`, '$5', $(touch made), '$$' FROM t WHERE x <> 'it''s; * ' -- \\n"""


def test_a_statement_reaches_trino_as_it_was_typed(project):
    code, said, words = project("make", "-s", "trino", f"SQL={HARD}")
    assert (code, said) == (0, "")
    assert words == ["compose", "exec", "-T", "-e", "TERM=dumb", "trino", "trino", "--execute", HARD]
    assert not (project.folder / "made").exists()


def test_a_statement_reaches_presto_as_it_was_typed(project):
    code, said, words = project("scripts/lake", "presto", HARD)
    assert (code, said) == (0, "")
    assert words == ["compose", "exec", "-T", "presto", "presto", "--execute", HARD]
    code, said, words = project("scripts/stack-presto", CONTAINERS_OF_SERVICE="none", RAW_SQL="SELECT 1")
    assert (code, words) == (1, [])
    assert "The stack has no presto. Next: make up PROFILES=presto" in said


def asked(server, *words):
    """How a container that has no key asks a server."""
    return ["sql-client", "pydelta", "sql", "--remote", f"sc://{server}:15002/;user_id={getpass.getuser()}", *words]


def test_where_the_sql_server_runs_a_statement_reaches_it_as_it_was_typed(project):
    lake, beeline = ["scripts/lake", "cluster-sql"], ["make", "-s", "sql", "SERVER=stack"]
    for statement, file, none, failed in (
        ([*lake, HARD], [*lake, "-f", "Makefile"], [*lake, "-f", "none.sql"], 1),
        ([*beeline, f"SQL={HARD}"], [*beeline, "ARGS=-f Makefile"], [*beeline, "ARGS=-f none.sql"], 2),
    ):
        words = project(*statement)[2]
        assert words[words.index("sql-client") :] == asked("sql", "-e", HARD)
        words = project(*file)[2]
        assert words[words.index("sql-client") :] == asked("sql", "-f", "/dev/stdin")
        code, said, words = project(*none)
        assert (code, words) == (failed, [])
        assert "There is no file none.sql that can be read" in said
    other = project("scripts/lake", "cluster-sql", HARD, AS_USER="vacuum", S3_VACUUM_SECRET_KEY="of-vacuum")[2]
    assert other[-4:] == ["pydelta", "sql", "-e", HARD]


def test_where_none_runs_the_first_statement_starts_a_session_and_later_ones_find_it(project):
    """The stand-in for Docker knows a session once it was waited for."""
    docker = project.folder.parent / "bin" / "docker"
    docker.write_text(
        STAND_IN.replace(
            '"ps -aq"*compose',
            '"ps -aq"*sql-server*) ;;\n  "ps -aq"*sql-session*) cat started 2>/dev/null ;;\n  "ps -aq"*compose',
            1,
        )
    )
    for name in ("build", "wait"):
        script = project.folder / "scripts" / f"stack-{name}"
        script.write_text(f'#!/bin/sh\necho "{name} $* of $PROFILES" >>started\ncat\n')
    code, said, words = project("scripts/lake", "cluster-sql", HARD)
    assert (code, words[words.index("sql-client") :]) == (0, asked("warm", "-e", HARD))
    assert said.startswith("Starting a session for SQL.")
    started = (project.folder / "started").read_text()
    assert started == "build sql-session of session\nwait sql-session of session\n"
    code, said, words = project("scripts/lake", "cluster-sql", "SELECT 2")
    assert (code, said, words[-1]) == (0, "", "SELECT 2")
    assert (project.folder / "started").read_text() == started


def test_beeline_gets_its_options_and_no_statement_that_it_would_pass_over(project):
    code, said, words = project(
        "make", "-s", "sql", "SERVER=stack", "SQL=SELECT 1", "ARGS=--outputformat=csv2 -i Makefile"
    )
    assert (code, said) == (0, "")
    prompt = ["sql-prompt", getpass.getuser(), "--outputformat=csv2", "-i", "/opt/scripts/1.sql", "-e", "SELECT 1;"]
    assert words[words.index("sql-prompt") :] == prompt
    assert f"{project.folder}/Makefile:/opt/scripts/1.sql:ro" in words
    code, said, words = project("make", "-s", "sql", "SERVER=stack", f"SQL={HARD}", "ARGS=--outputformat=csv2")
    assert (code, words) == (2, [])
    assert "beeline leaves out statements after comments" in said


def test_without_the_service_the_stack_s_server_is_not_asked(project):
    code, said, words = project("scripts/stack-sql", CONTAINERS_OF_SERVICE="none", RAW_SQL="SELECT 1")
    assert (code, words) == (1, [])
    assert "The stack has no sql-server. Next: make up PROFILES=serve" in said
    code, said, words = project("scripts/stack-sql", SERVER="elsewhere")
    assert (code, words) == (1, [])
    assert "There is no SERVER elsewhere" in said


def test_arguments_of_a_job_are_grouped_by_quotes_and_nothing_in_them_is_run(project):
    given = """--where 'name = "x"' --input s3a://work/*.csv --text "$(touch made) `touch made` $HOME" --empty ''"""
    code, _, words = project("make", "-s", "submit", "JOB=delete", f"ARGS={given}")
    assert code == 0
    assert words[words.index("submit") :] == [
        "submit", "delete", "--where", 'name = "x"', "--input", "s3a://work/*.csv",
        "--text", "$(touch made) `touch made` $HOME", "--empty", "",
    ]  # fmt: skip
    assert not (project.folder / "made").exists()


def test_a_job_without_arguments_gets_none(project):
    assert project("make", "-s", "submit", "JOB=compact")[2][-2:] == ["submit", "compact"]
    assert project("scripts/lake", "submit", "compact")[2][-2:] == ["submit", "compact"]


def test_a_job_s_arguments_given_one_by_one_arrive_as_they_are_and_its_code_passes(project):
    code, said, words = project("scripts/lake", "submit", "delete", "--where", HARD, "it's", "a\nb", "", CODE="3")
    assert words[words.index("submit") :] == ["submit", "delete", "--where", HARD, "it's", "a\nb", ""]
    assert (code, said.splitlines()[-1][:33]) == (3, "delete ended with exit code 3: th")
    assert not (project.folder / "made").exists()


def test_logs_of_one_service_with_options(project):
    words = project("scripts/lake", "logs", "trino", "--since", "1 hour")[2]
    assert words == ["compose", "--profile", "*", "logs", "--tail", "200", "--since", "1 hour", "trino"]
    assert project("make", "-s", "logs", "SERVICE=trino", "ARGS=--since '1 hour'")[2] == words


def test_a_quote_without_an_end_is_said(project):
    code, said, words = project("scripts/stack-submit", RAW_JOB="delete", RAW_ARGS="--where 'name = 1")
    assert (code, words) == (1, [])
    assert "a quote without its end" in said


@pytest.mark.parametrize(
    ("code", "meaning"), [(1, "has to change first"), (2, "run it again"), (3, "outcome is unknown")]
)
def test_the_code_of_a_job_passes_and_is_said_last(project, code, meaning):
    found, said, _ = project("scripts/stack-submit", RAW_JOB="delete", CODE=str(code))
    assert found == code
    last = said.splitlines()[-1]
    assert last.startswith(f"delete ended with exit code {code}: ")
    assert meaning in last
    assert project("scripts/stack-run", "submit", "delete", CODE=str(code))[0] == code


def test_a_script_from_elsewhere_is_seen_in_the_container_with_what_lies_beside_it(project, tmp_path):
    script = tmp_path / "my jobs" / "load.py"
    script.parent.mkdir()
    script.write_text("")
    code, _, words = project("scripts/stack-submit", RAW_JOB=str(script), RAW_ARGS="--day 1")
    assert code == 0
    assert f"{script.parent}:/opt/scripts:ro" in words
    assert words[-4:] == ["submit", "/opt/scripts/load.py", "--day", "1"]
    code, said, words = project("scripts/stack-submit", RAW_JOB="no/such.py")
    assert (code, words) == (1, [])
    assert "There is no file no/such.py" in said


def test_verify_runs_in_a_client_with_what_the_stack_has(project):
    (project.folder / ".env").write_text("S3_SECRET_KEY=of-the-store-hush-q7Zk\nSYNC_EVERY_SECONDS=15\n")
    code, _, words = project("make", "-s", "verify", CONTAINERS_OF_SERVICE="none")
    assert code == 0
    assert words[-4:] == ["spark-client", "python", "-m", "jobs.verify"]
    assert {"VERIFY_BREAK=", "SYNC_EVERY_SECONDS=15", "PYTHONPATH=/opt/lakehouse:/opt"} <= set(words)
    profiles = {"VERIFY_KAFKA=kafka:9092", "VERIFY_PRESTO=presto:8080", "VERIFY_ICEBERG=iceberg:8181"}
    assert not profiles & set(words)
    token = secret("token of the REST catalog")
    code, _, words = project("make", "-s", "verify", VERIFY_BREAK="sync", ICEBERG_TOKEN=token)
    assert {"VERIFY_BREAK=sync", "VERIFY_ICEBERG_TOKEN", *profiles} <= set(words)
    assert token not in " ".join(words), "it is not on the command line"
    assert f"VERIFY_ICEBERG_TOKEN={token}" in env_of_compose(project, ["scripts/stack-verify"], ICEBERG_TOKEN=token)


def test_verify_follows_a_row_of_the_sample_database_but_writes_to_no_other(project):
    code, said, words = project("scripts/stack-verify", CAPTURE="one", CDC_HOST="db.example.com")
    assert (code, words[-1]) == (0, "jobs.verify")
    assert "nothing is written to the database of db.example.com" in said
    code, said, words = project("scripts/stack-verify-changes", CAPTURE="one")
    assert (code, words[-2:]) == (4, ["-m", "jobs.verify.changes"])
    assert "The watcher ended before its last step" in said
    code, said, words = project("scripts/stack-verify-changes")
    assert (code, words) == (1, [])
    assert "The stack has no connect. Next: make up PROFILES=cdc" in said


def test_verify_compares_charts_where_the_stack_has_some(project):
    password = secret("password of Superset")
    code, said, words = project("scripts/stack-verify", CHARTS="one", BI_PASSWORD=password)
    assert (code, words[-3:]) == (0, ["python", "-m", "jobs.verify.charts"])
    assert "Charts: the numbers of the dashboard of flights" in said
    assert {"SUPERSET_USER=admin", "SUPERSET_PASSWORD"} <= set(words)
    assert password not in " ".join(words)
    code, said, words = project("scripts/stack-verify-charts", CHARTS="one", CAPTURE="one")
    assert (code, words[-3:]) == (4, ["--follow", "shop", "Orders"])
    assert "The watcher ended before its last step" in said
    assert "The stack has no superset. Next: make up PROFILES=bi" in project("scripts/stack-verify-charts")[1]
    given = env_of_compose(project, ["scripts/stack-verify-charts"], CHARTS="one", BI_PASSWORD=password)
    assert f"SUPERSET_PASSWORD={password}" in given


def test_verify_of_a_stack_that_is_down_says_so_and_its_code_is_the_program_s(project):
    code, said, words = project("scripts/stack-verify", HEALTH="", CONTAINERS="")
    assert (code, words) == (1, [])
    assert "is not up. Next: make up" in said
    assert project("scripts/stack-verify", CODE="4")[0] == 4


def test_histories_of_iceberg_entries_say_what_they_lack_and_run_nothing(project):
    def tried(**env):
        code, said, words = project("scripts/test-stack-iceberg", **{"PYTHON": sys.executable} | env)
        assert (code, words) == (1, [])
        return said

    assert "The stack has no iceberg. Next: make up PROFILES=iceberg" in tried(CONTAINERS_OF_SERVICE="none")
    assert "do not reach a store of the kind hdfs. Next: make verify" in tried(VOLUMES="tried_hdfs-name")
    assert "ask for TLS. Next: a stack without SECURE=yes" in tried(SECURE="yes")
    assert "/bin/false has no DuckDB and no PyIceberg. Next: make lint" in tried(PYTHON="/bin/false")


@pytest.mark.parametrize(
    "script", ["stack-submit", "stack-run", "stack-trino", "stack-presto", "stack-sql", "stack-verify"]
)
def test_without_env_a_command_says_so_and_runs_nothing(project, script):
    (project.folder / ".env").unlink()
    code, said, words = project(f"scripts/{script}", RAW_JOB="delete", RAW_SQL="SELECT 1")
    assert (code, words) == (1, [])
    assert ".env, with the stack's secrets and ports, is not here" in said
    assert "make up" in said


@pytest.mark.parametrize(
    "target",
    [
        "make down", "make status", "make logs", "make backup FILE=b.tar.gz", "make submit JOB=delete",
        "make put FILE=Makefile", "make verify", "make trino SQL=x", "make sql SERVER=stack", "scripts/lake pyspark",
        "scripts/lake cluster-sql x", "scripts/lake presto x", "scripts/lake status", "scripts/lake run true",
    ],
)  # fmt: skip
def test_before_the_first_start_make_up_is_all_that_is_advised(project, target):
    (project.folder / ".env").unlink()
    _, said, words = project(*target.split(), CONTAINERS="", CONTAINERS_OF_SERVICE="none")
    assert words == []
    assert "make up" in said
    assert ".env" not in said


@pytest.mark.parametrize(
    ("script", "env"),
    [
        ("stack-down", {}),
        ("stack-reset", {"CONFIRM": "yes"}),
        ("stack-trino", {"RAW_SQL": "SELECT 1"}),
        ("stack-put", {"RAW_FILE": ".env"}),
        ("stack-run", {}),
        ("stack-backup", {}),
        ("stack-restore", {}),
        ("stack-wait", {}),
    ],
)
def test_the_stack_of_another_clone_is_left_alone(project, tmp_path, script, env):
    """Its secrets are in its own folder: from here it could only be broken."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "docker-compose.yml").touch()
    kept = tmp_path / "kept.tar.gz"
    if script == "stack-restore":
        assert project("scripts/stack-backup", RAW_FILE=str(kept))[0] == 0
    code, said, words = project(f"scripts/{script}", STARTED_FROM=str(other), **env, **_backup(script, kept))
    assert (code, words) == (1, [])
    assert f"The stack (tried) was started from {other}, not from here. Nothing was changed." in said
    assert "LAKEHOUSE_PROJECT=" in said
    assert "make down there" in said
    # a link to this folder is this folder, and a clone that was deleted or moved holds nothing back
    (tmp_path / "link").symlink_to(project.folder)
    if script != "stack-wait":
        for folder in (project.folder, tmp_path / "link", tmp_path / "deleted"):
            again = project(f"scripts/{script}", STARTED_FROM=str(folder), **env, **_backup(script, kept))
            assert "was started from" not in again[1]


def _backup(script, kept):
    return {"RAW_FILE": str(kept), "CONFIRM": "yes"} if script == "stack-restore" else {}


def test_without_env_the_stack_can_be_stopped(project):
    (project.folder / ".env").unlink()
    code, said, words = project("scripts/stack-down")
    assert code == 0
    assert "Stopped" in said
    assert "down" in words
    code, said, words = project("scripts/stack-down", CONTAINERS="")
    assert (code, words) == (0, [])
    assert "nothing was stopped" in said


def test_a_stack_that_is_down_and_one_that_is_ill_are_told_apart(project):
    assert "is not up. Next: make up" in project("scripts/stack-trino", HEALTH="", CONTAINERS="")[1]
    assert "trino is not healthy (starting)" in project("scripts/stack-trino", HEALTH="starting")[1]


def test_status_tells_which_services_have_ended_by_themselves(project):
    said = project("scripts/stack-status", RESTARTS="2")[1]
    assert "trino ended by itself and was started again, 2 times since it was made" in said
    assert "make logs SERVICE=trino" in said
    assert "ended by itself" not in project("scripts/stack-status")[1]


def test_a_lost_env_is_written_again_and_data_of_before_is_said(project):
    (project.folder / ".env").unlink()
    code, said, _ = project("scripts/make-env", VOLUMES="tried_minio-data")
    assert code == 0
    assert "has data from before and goes on with it" in said
    assert (project.folder / ".env").stat().st_mode & 0o077 == 0
    assert project("scripts/make-env") == (0, "", [])


def token_of(project):
    lines = (project.folder / ".env").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("NOTEBOOK_TOKEN=")]
    return line.removeprefix("NOTEBOOK_TOKEN=")


def test_env_gets_a_token_for_the_notebooks_once(project):
    (project.folder / ".env").write_text(
        "S3_SECRET_KEY=of-the-store-hush-q7Zk\nLAKEHOUSE_PROJECT=tried"
    )  # without an end of line
    assert project("scripts/make-env") == (0, "", [])
    token = token_of(project)
    assert len(token) >= 32
    assert "LAKEHOUSE_PROJECT=tried" in (project.folder / ".env").read_text().splitlines()
    assert project("scripts/make-env") == (0, "", [])
    assert token_of(project) == token
    (project.folder / ".env").unlink()
    assert project("scripts/make-env")[0] == 0
    assert len(token_of(project)) >= 32 and token_of(project) != token


def env_of_compose(project, script, **env):
    """What Compose would see of the variables that the scripts set."""
    docker = project.folder.parent / "bin" / "docker"
    docker.write_text(STAND_IN.replace("  *) printf", '  *) env >"$NOTED.env"; printf'))
    project(*script, **env)
    lines = (project.folder.parent / "noted.env").read_text()
    (project.folder.parent / "noted.env").unlink()
    return lines


@pytest.mark.parametrize("command", [["stack-run", "prompt"], ["stack-put"], ["stack-submit"], ["stack-verify"]])
def test_a_command_starts_nothing_but_its_own_container(project, command):
    words = project(f"scripts/{command[0]}", *command[1:], RAW_JOB="delete", RAW_FILE=".env")[2]
    assert "run" in words
    assert "--no-deps" in words[: words.index("spark-client")]


def test_the_first_start_has_the_keys_that_it_has_just_written(project):
    (project.folder / ".env").unlink()
    (project.folder / "scripts" / "stack-preflight").write_text("#!/bin/sh\n")
    seen = dict(
        line.split("=", 1) for line in env_of_compose(project, ["scripts/stack-up"]).splitlines() if "=" in line
    )
    found = settings(project)
    assert (seen["STORE_SPARK_KEY"], seen["STORE_SPARK_SECRET"]) == ("spark", found["S3_SPARK_SECRET_KEY"])
    assert seen["STORE_VACUUM_SECRET"] == found["STORE_VACUUM_SECRET"] == found["S3_VACUUM_SECRET_KEY"] != ""


def backup_of(project, name="kept.tar.gz"):
    code, said, _ = project("make", "-s", "backup", f"FILE={name}")
    assert code == 0, said
    return project.folder / name


def test_a_backup_is_its_owner_s_alone_and_is_never_written_over(project):
    kept = backup_of(project)
    assert kept.stat().st_mode & 0o077 == 0
    before = kept.read_bytes()
    code, said, words = project("scripts/stack-backup", RAW_FILE="kept.tar.gz")
    assert (code, words) == (1, [])
    assert "kept.tar.gz is there already" in said
    assert kept.read_bytes() == before


def test_a_backup_that_the_database_does_not_give_leaves_no_file(project):
    code, said, _ = project("scripts/stack-backup", RAW_FILE="kept.tar.gz", CODE="1")
    assert code == 1
    assert "nothing was kept. Next: make logs SERVICE=postgres" in said
    assert not list(project.folder.glob("kept*"))


def test_what_is_no_backup_is_refused_before_anything_is_changed(project):
    kept = backup_of(project)
    damaged = kept.with_name("damaged.tar.gz")
    damaged.write_bytes(kept.read_bytes()[:-60])
    other = kept.with_name("other.tar.gz")
    subprocess.run(["tar", "-czf", other, "-C", project.folder, "Makefile"], check=True)
    (project.folder / ".env").unlink()
    for name, reason in (
        ("", "Which backup?"),
        ("none", "no file none"),
        (damaged, "is damaged"),
        (other, "not written by"),
    ):
        code, said, words = project("scripts/stack-restore", RAW_FILE=str(name))
        assert (code, words) == (1, []), name
        assert reason in said
        assert "Next: " in said
        assert not (project.folder / ".env").exists()


def test_a_part_that_is_not_what_was_written_is_noticed(project):
    kept = backup_of(project)
    parts = project.folder / "parts"
    parts.mkdir()
    subprocess.run(["tar", "-xzf", kept, "-C", parts], check=True)
    (parts / "backup" / "metastore.dump").write_text("something else")
    subprocess.run(["tar", "-czf", kept, "-C", parts, "backup"], check=True)
    code, said, words = project("scripts/stack-restore", RAW_FILE=str(kept))
    assert (code, words) == (1, [])
    assert "what is in it is not what was written" in said


def test_a_metastore_is_not_replaced_unasked(project):
    kept = backup_of(project)
    code, said, _ = project("make", "-s", "restore", f"FILE={kept}")
    assert code == 2
    assert "has a metastore. It is replaced by the one of the project tried" in said
    assert "CONFIRM=yes" in said


def test_configuration_that_differs_is_taken_and_the_old_kept(project):
    kept = backup_of(project)
    schedule = project.folder / "jobs" / "schedule.conf"
    wanted = schedule.read_text()
    schedule.write_text("daily 04:00 true")
    (project.folder / ".env").unlink()
    code, said, _ = project("scripts/stack-restore", RAW_FILE=str(kept), VOLUME_IS_THERE="1")
    assert code == 0, said
    assert schedule.read_text() == wanted
    assert schedule.with_name("schedule.conf.before-restore").read_text() == "daily 04:00 true"
    assert "Took jobs/schedule.conf from the backup" in said
    assert "trino_conf" not in said.replace(str(kept), "")
    assert (project.folder / ".env").stat().st_mode & 0o077 == 0
    assert "LAKEHOUSE_PROJECT=tried" in (project.folder / ".env").read_text()


def settings(project):
    """The lines of ``.env`` that set something."""
    lines = (project.folder / ".env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@pytest.mark.parametrize(
    ("store", "root"), [("minio", "s3a://"), ("versity", "s3a://"), ("hdfs", "hdfs://namenode:8020/")]
)
def test_the_first_start_notes_its_store_for_who_calls_docker_compose(project, store, root):
    (project.folder / ".env").unlink()
    assert project("scripts/make-env", STORE=store)[0] == 0
    found = settings(project)
    assert (found["STORE"], found["COMPOSE_PROFILES"], found["STORE_ROOT"]) == (store, store, root)
    assert project("scripts/make-env") == (0, "", []), "the next start finds it there"
    assert settings(project) == found


def test_what_is_added_to_env_stays_when_the_store_is_noted_anew(project):
    env = project.folder / ".env"
    before = env.read_text()
    assert project("scripts/make-env", STORE="hdfs")[0] == 0
    assert env.read_text().startswith(before), "secrets of before are kept"
    assert settings(project)["POSTGRES_PASSWORD"], "what is lacking is added"
    with env.open("a") as end:
        end.write("TRINO_PORT=8089\n")
    held = settings(project)
    assert project("scripts/make-env", STORE="versity")[0] == 0
    found = settings(project)
    assert (found["STORE"], found["TRINO_PORT"], found["STORE_ENDPOINT"]) == ("versity", "8089", "http://versity:7070")
    assert {name: found[name] for name in ("S3_SECRET_KEY", "POSTGRES_PASSWORD")} == {
        "S3_SECRET_KEY": "of-the-store-hush-q7Zk",
        "POSTGRES_PASSWORD": held["POSTGRES_PASSWORD"],
    }
    assert env.read_text().count("\nSTORE=") == 1


def test_an_s3_of_one_s_own_is_noted_with_its_keys(project):
    (project.folder / ".env").unlink()
    given = {"S3_ENDPOINT": "https://s3.example.com", "S3_ACCESS_KEY": "mine", "S3_SECRET_KEY": "hidden"}
    code, said, _ = project("scripts/make-env", STORE="external", S3_ROOT="s3a://acme-", **given)
    assert code == 0
    assert "hidden" not in said
    found = settings(project)
    assert given.items() <= found.items()
    assert found["STORE_ROOT"] == found["S3_ROOT"] == "s3a://acme-"
    assert (found["STORE_CHECK"], found["STORE_IS_INSIDE"]) == ("tcp://s3.example.com:443", "false")


@pytest.mark.parametrize(
    ("endpoint", "check"),
    [
        ("http://10.0.0.7:9000", "tcp://10.0.0.7:9000"),
        ("http://s3.lan/", "tcp://s3.lan:80"),
        ("https://s3.lan", "tcp://s3.lan:443"),
    ],
)
def test_the_page_asks_the_port_of_an_s3_of_one_s_own(project, endpoint, check):
    project("scripts/make-env", STORE="external", S3_ENDPOINT=endpoint)
    assert settings(project)["STORE_CHECK"] == check


@pytest.mark.parametrize(
    ("store", "to"), [("minio", "s3a://work/day.csv"), ("hdfs", "hdfs://namenode:8020/work/day.csv")]
)
def test_a_file_is_put_into_the_place_work_of_the_store(project, store, to):
    (project.folder / "day.csv").write_text("id\n1\n")
    code, said, words = project("scripts/stack-put", RAW_FILE="day.csv", STORE=store)
    assert (code, said) == (0, "")
    assert words[-3:] == ["put", to, "5"]
    assert project("scripts/stack-put", RAW_FILE="day.csv", STORE=store, RAW_TO="s3a://elsewhere/x.csv")[2][-2] == (
        "s3a://elsewhere/x.csv"
    )


def test_the_store_is_the_one_that_the_data_is_in(project):
    (project.folder / "day.csv").write_text("id\n1\n")
    words = project("scripts/stack-put", RAW_FILE="day.csv", STORE="minio", VOLUMES="tried_hdfs-name")[2]
    assert words[-2] == "hdfs://namenode:8020/work/day.csv"


def test_a_metastore_that_was_put_back_alone_has_its_store_in_env(project):
    (project.folder / "day.csv").write_text("id\n1\n")
    with (project.folder / ".env").open("a") as env:
        env.write("STORE=hdfs\n")
    words = project("scripts/stack-put", RAW_FILE="day.csv", VOLUMES="tried_postgres-data other_minio-data")[2]
    assert words[-2] == "hdfs://namenode:8020/work/day.csv"


def test_an_inventory_is_made_now_as_the_schedule_makes_it(project):
    words = project("scripts/lake", "inventory")[2]
    assert words[:6] == ["compose", "exec", "-T", "scheduler", "bash", "-c"]
    first, then = words[6].split(" && ")
    assert first.startswith("as-user inventory python /opt/jobs/inventory.py --source ${STORE_ROOT:-s3a://}warehouse")
    assert then.startswith("as-user inventory python /opt/jobs/load_inventory.py --source")
    (project.folder / "jobs" / "schedule.conf").write_text("every 60 true\n")
    code, said, words = project("scripts/stack-inventory")
    assert (code, words) == (1, [])
    assert "has no line that lists the warehouse" in said
