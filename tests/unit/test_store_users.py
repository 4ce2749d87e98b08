"""Users of the stack's store: secrets in ``.env``, whose key a command gets, policies for an S3 of one's own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import stack_files

ROOT = Path(__file__).resolve().parents[2]
AS_USER = ROOT / "images" / "spark" / "bin" / "as-user"
OLD_ENV = (
    "S3_ACCESS_KEY=root\nS3_SECRET_KEY=root-hush-q7Zk\nPOSTGRES_PASSWORD=p-hush-q7Zk\nNOTEBOOK_TOKEN=n-hush-q7Zk\n"
    "TRINO_PORT=8089\n"
)

STAND_IN = """#!/bin/sh
case "$*" in
  "compose ps --format"*) echo healthy ;;
  "ps -aq"*service=connect | "ps -aq"*service=superset) ;;
  "ps -aq"*) echo one ;;
  "ps -a "*working_dir*) ;;
  "volume ls"*) echo "${VOLUMES:-}" ;;
  *) printf '%s\\0' "$@" >"$NOTED"; env >"$NOTED.env" ;;
esac
"""


def users():
    """The users that the file of rights names."""
    lines = (line.split() for line in (ROOT / "images/store/rights").read_text().splitlines() if line[:1] != "#")
    return list(dict.fromkeys(words[0] for words in lines if words and "+" not in words[0]))


@pytest.fixture
def project(tmp_path):
    """Runs a command in a copy of the scripts: exit code, output, Docker's words and environment."""
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copytree(ROOT / "images/store", folder / "images/store")
    shutil.copy(ROOT / "Makefile", folder)
    shutil.copy(ROOT / "pyproject.toml", folder)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "docker").write_text(STAND_IN)
    (tools / "docker").chmod(0o755)
    noted = tmp_path / "noted"

    def run(*command, **env):
        for name in (noted, noted.with_suffix(".env")):
            name.unlink(missing_ok=True)
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
        lines = noted.with_suffix(".env").read_text().splitlines() if words else []
        return done.returncode, done.stdout + done.stderr, words, dict(line.partition("=")[::2] for line in lines)

    run.env = folder / ".env"
    return run


def settings(project):
    """The lines of ``.env`` that set something."""
    return dict(line.split("=", 1) for line in project.env.read_text().splitlines() if re.match(r"[A-Z0-9_]+=", line))


def secrets_of(project, form="S3_{}_SECRET_KEY"):
    found = settings(project)
    return {user: found.get(form.format(user.upper())) for user in users()}


def test_the_scripts_know_the_users_of_the_file_of_rights():
    text = (ROOT / "scripts" / "stack-lib").read_text()
    (named,) = re.findall(r'^STORE_USERS="(.*)"$', text, re.MULTILINE)
    assert sorted(named.split()) == sorted(users())
    keys = {f"STORE_{user.upper()}_{kind}" for user in users() for kind in ("KEY", "SECRET")}
    environment = stack_files.services()["minio-init"]["environment"]
    assert {name for name, value in environment.items() if value is None} == keys, "handed on as .env has them"


def test_a_service_has_the_keys_of_other_users_only_to_hand_them_on():
    held = {
        name: {key for key in said.get("environment", {}) if re.fullmatch(r"STORE_[A-Z]+_(KEY|SECRET)", key)}
        for name, said in stack_files.services().items()
    }
    jobs = {"SPARK", "SYNC", "MAINTAIN", "INVENTORY", "VACUUM"}
    of_jobs = {f"STORE_{user}_{kind}" for user in jobs for kind in ("KEY", "SECRET")}
    assert held["scheduler"] == held["airflow"] == of_jobs
    steps = {"minio-init", "versity-init"}
    assert {name for name, keys in held.items() if keys} == {*steps, "scheduler", "airflow", "stack-tests"}


@pytest.mark.parametrize("store", ["minio", "versity"])
@pytest.mark.parametrize("before", [None, OLD_ENV, OLD_ENV.rstrip("\n"), OLD_ENV + "S3_SYNC_SECRET_KEY=\n"])
def test_a_start_gives_each_user_a_secret_of_its_own_once(project, before, store):
    if before is not None:
        project.env.write_text(before)
    code, said, *_ = project("scripts/make-env", STORE=store)
    assert code == 0
    made = secrets_of(project)
    assert len(set(made.values())) == len(users())
    assert all(secret and re.fullmatch(r"[A-Za-z0-9+/=._~-]{8,40}", secret) for secret in made.values())
    assert not [secret for secret in made.values() if secret in said]
    assert secrets_of(project, "STORE_{}_SECRET") == made
    assert secrets_of(project, "STORE_{}_KEY") == {user: user for user in users()}
    if before is not None:
        kept = ("S3_ACCESS_KEY", "S3_SECRET_KEY", "POSTGRES_PASSWORD", "NOTEBOOK_TOKEN", "TRINO_PORT")
        assert {name: settings(project)[name] for name in kept} == dict(
            line.split("=", 1) for line in OLD_ENV.splitlines()
        )
    text = project.env.read_text()
    assert project("scripts/make-env")[:2] == (0, "")
    assert project.env.read_text() == text
    assert project.env.stat().st_mode & 0o077 == 0


def test_a_start_makes_the_secrets_of_airflow_once_also_for_an_older_env(project):
    def secrets():
        return [settings(project)[f"AIRFLOW_{name}"] for name in ("PASSWORD", "SECRET", "DATABASE_PASSWORD")]

    project.env.write_text(OLD_ENV)
    assert project("scripts/make-env")[:2] == (0, "")
    made = secrets()
    assert len(set(made)) == 3
    assert min(map(len, made)) >= 32
    assert project("scripts/make-env")[:2] == (0, "")
    assert secrets() == made
    project.env.unlink()
    assert project("scripts/make-env")[0] == 0
    assert not set(secrets()) & set(made)


def test_a_secret_that_was_changed_is_taken_and_its_user_named(project):
    project("scripts/make-env")
    old = secrets_of(project)["trino"]
    project.env.write_text(
        project.env.read_text().replace(f"S3_TRINO_SECRET_KEY={old}", "S3_TRINO_SECRET_KEY=my-own-one")
    )
    code, said, *_ = project("scripts/make-env")
    assert code == 0
    assert said.count("\n") == 1
    assert said.startswith("The secret of the store's user trino is another one than at the last start")
    assert secrets_of(project, "STORE_{}_SECRET")["trino"] == "my-own-one"
    assert project("scripts/make-env")[:2] == (0, "")


@pytest.mark.parametrize("store", ["hdfs", "external"])
def test_a_store_without_users_has_the_one_key_for_all(project, store):
    assert project("scripts/make-env", STORE=store, S3_ENDPOINT="http://s3.lan")[0] == 0
    found = settings(project)
    assert not [name for name in found if re.fullmatch(r"S3_[A-Z]+_(ACCESS|SECRET)_KEY", name)]
    assert set(secrets_of(project, "STORE_{}_KEY").values()) == {found["S3_ACCESS_KEY"]}
    assert set(secrets_of(project, "STORE_{}_SECRET").values()) == {found["S3_SECRET_KEY"]}


def test_a_store_without_users_is_not_asked_with_those_of_another(project):
    project("scripts/make-env")
    made = secrets_of(project)
    project("scripts/make-env", STORE="hdfs")
    assert settings(project)["STORE_TRINO_SECRET"] == settings(project)["S3_SECRET_KEY"]
    project("scripts/make-env", STORE="minio")
    assert secrets_of(project, "STORE_{}_SECRET") == made


def test_an_s3_of_one_s_own_has_the_keys_that_env_says(project):
    project.env.write_text(
        f"{OLD_ENV}STORE=external\nS3_ENDPOINT=http://s3.lan\nS3_TRINO_ACCESS_KEY=reader\nS3_TRINO_SECRET_KEY=reads\n"
        "S3_SPARK_ACCESS_KEY=half\n"
    )
    assert project("scripts/make-env")[0] == 0
    found = settings(project)
    assert (found["STORE_TRINO_KEY"], found["STORE_TRINO_SECRET"]) == ("reader", "reads")
    assert (found["STORE_SPARK_KEY"], found["STORE_SPARK_SECRET"]) == (found["S3_ACCESS_KEY"], found["S3_SECRET_KEY"])


def given_to(project, *command, **env):
    """The key that a client container gets: None for that of its service, Spark's."""
    code, said, words, environment = project(*command, **env)
    assert code == 0, said
    if "AWS_ACCESS_KEY_ID" not in words:
        return None
    assert words[words.index("AWS_SECRET_ACCESS_KEY") - 1] == "-e"
    assert environment["AWS_SECRET_ACCESS_KEY"] not in words, "a command line is there for all to read"
    return environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]


def test_a_client_gets_the_key_of_the_user_that_is_named(project):
    project("scripts/make-env")
    vacuum = ("vacuum", secrets_of(project)["vacuum"])
    assert given_to(project, "scripts/lake", "cluster-sql", "SELECT 1") is None
    assert given_to(project, "scripts/lake", "cluster-sql", "DROP TABLE t", AS_USER="vacuum") == vacuum
    assert given_to(project, "make", "-s", "submit", "JOB=compact") is None
    assert given_to(project, "make", "-s", "submit", "JOB=vacuum") == vacuum
    assert given_to(project, "scripts/stack-run", "submit", "vacuum") == vacuum
    assert given_to(project, "make", "-s", "submit", "JOB=inventory")[0] == "inventory"
    assert given_to(project, "make", "-s", "submit", "JOB=inventory", "AS_USER=vacuum") == vacuum


@pytest.mark.parametrize("user", ["nobody", "root", "spark sync", "a;b"])
def test_a_user_that_is_not_there_is_said_and_nothing_is_run(project, user):
    project("scripts/make-env")
    code, said, words, _ = project("scripts/stack-run", "prompt", AS_USER=user)
    assert (code, words) == (1, [])
    assert f"There is no user {user} of the store. Next: AS_USER is one of: spark sync" in said


def test_where_all_have_one_key_a_named_user_has_that_one(project):
    project("scripts/make-env", STORE="hdfs")
    found = settings(project)
    assert given_to(project, "scripts/stack-run", "submit", "vacuum") == (
        found["S3_ACCESS_KEY"],
        found["S3_SECRET_KEY"],
    )


def test_another_key_for_all_is_not_said_of_each_user(project):
    project("scripts/make-env", STORE="hdfs")
    text = project.env.read_text()
    old = settings(project)["S3_SECRET_KEY"]
    project.env.write_text(text.replace(f"S3_SECRET_KEY={old}", "S3_SECRET_KEY=another-one"))
    assert project("scripts/make-env", STORE="hdfs")[:2] == (0, "")
    assert settings(project)["STORE_TRINO_SECRET"] == "another-one"


def test_verify_gets_the_keys_of_those_whose_work_it_looks_at(project):
    project("scripts/make-env")
    _, _, words, environment = project("scripts/stack-verify")
    for name in ("STORE_VACUUM_KEY", "STORE_VACUUM_SECRET", "STORE_INVENTORY_KEY", "STORE_INVENTORY_SECRET"):
        assert words[words.index(name) - 1] == "-e"
        assert environment[name]
    assert "STORE_TRINO_SECRET" not in words


def as_user(*words, **env):
    keys = {
        f"STORE_{name}_{kind}": f"{name.lower()}-{kind.lower()}"
        for name in ("A", "B", "C")
        for kind in ("KEY", "SECRET")
    }
    done = subprocess.run(
        [AS_USER, *words],
        env={"PATH": os.environ["PATH"], "STORE_ROOT": "s3a://", "AWS_ACCESS_KEY_ID": "x"} | keys | env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_command_gets_the_key_of_its_user_and_no_other():
    code, said, _ = as_user("a,b", "env")
    assert code == 0
    found = dict(line.partition("=")[::2] for line in said.splitlines())
    assert {name: value for name, value in found.items() if name.startswith(("STORE", "AWS"))} == {
        "STORE_ROOT": "s3a://",
        "AWS_ACCESS_KEY_ID": "a-key",
        "AWS_SECRET_ACCESS_KEY": "a-secret",
        "STORE_B_KEY": "b-key",
        "STORE_B_SECRET": "b-secret",
    }
    code, said, _ = as_user("a,b", str(AS_USER), "b", "sh", "-c", "echo $AWS_ACCESS_KEY_ID $STORE_B_KEY; exit 3")
    assert (code, said) == (3, "b-key\n")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["nobody", "env"], "There is no key of the store's user nobody here."),
        (["a,nobody", "env"], "There is no key of the store's user nobody here."),
        (["a"], "takes the name of a user"),
        ([], "takes the name of a user"),
        (["a b", "env"], "takes the name of a user"),
    ],
)
def test_a_command_without_a_key_is_not_run(words, expected):
    code, said, wrong = as_user(*words)
    assert (code, said) == (1, "")
    assert expected in wrong
    assert "secret" not in wrong.replace("_SECRET", "")


def test_each_command_of_the_schedule_says_whose_key_it_gets():
    text = (ROOT / "jobs" / "schedule.conf").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    commands = [command for line in lines for command in line.split(" && ")]
    named = [re.findall(r"as-user ([a-z,]+) ", command) for command in commands]
    assert all(named), commands
    assert {user for found in named for part in found for user in part.split(",")} <= set(users())
    for command in commands:
        if "vacuum.py" in command and "maintain.py" not in command:
            assert "as-user vacuum python /opt/jobs/vacuum.py" in command


@pytest.mark.parametrize(
    ("root", "resource", "listed"),
    [
        ("s3a://", "warehouse/*", ("warehouse", None)),
        ("s3a://acme-", "acme-warehouse/*", ("acme-warehouse", None)),
        ("s3a://acme/lake/", "acme/lake/warehouse/*", ("acme", ["lake/warehouse", "lake/warehouse/*"])),
    ],
)
def test_policies_name_the_places_of_an_s3_of_one_s_own(project, root, resource, listed):
    code, said, *_ = project("scripts/lake", "policies", "presto", S3_ROOT=root)
    assert code == 0
    (policy,) = json.loads(said).values()
    lists, reads = policy["Statement"]
    assert reads == {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": [f"arn:aws:s3:::{resource}"]}
    assert lists["Resource"] == [f"arn:aws:s3:::{listed[0]}"]
    assert lists.get("Condition", {}).get("StringLike", {}).get("s3:prefix") == listed[1]


def test_policies_of_all_are_printed_and_what_env_opens_is_in_them(project):
    code, said, *_ = project("scripts/lake", "policies")
    assert (code, sorted(json.loads(said))) == (0, sorted(users()))
    for setting, user in (({"TRINO_DELTA_SECURITY": "allow-all"}, "trino"), ({"SPARK_DROPS": "allow"}, "spark")):
        opened = json.loads(project("scripts/lake", "policies", **setting)[1])
        changed = [name for name in users() if opened[name] != json.loads(said)[name]]
        assert changed == [user]
        last = opened[user]["Statement"][-1]
        assert (last["Action"], last["Resource"]) == (["s3:DeleteObject"], ["arn:aws:s3:::warehouse/*"])
    code, said, *_ = project("scripts/lake", "policies", "nobody")
    assert code == 1
    assert "There is no user nobody of the store. Next: USERS is some of: spark sync" in said


def bucket_policies(*pairs, rights=ROOT / "images/store/rights", **env):
    """Policies of buckets, as Versity gets them."""
    done = subprocess.run(
        [ROOT / "images/store/make-policies", rights, "--buckets", *pairs],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, dict(line.split(" ", 1) for line in done.stdout.splitlines()), done.stderr


def said_of(policy, key):
    """What a policy says of a key: effect, an action, a place."""
    return {
        (part["Effect"], action.removeprefix("s3:"), place.removeprefix("arn:aws:s3:::"))
        for part in json.loads(policy)["Statement"]
        if key in part["Principal"]["AWS"]
        for action in part["Action"]
        for place in part["Resource"]
    }


@pytest.mark.parametrize("opened", [{}, {"TRINO_DELTA_SECURITY": "allow-all", "SPARK_DROPS": "allow"}])
def test_policies_of_buckets_say_what_those_of_users_say(project, opened):
    code, made, _ = bucket_policies(*(f"{user}=key-{user}" for user in users()), **opened)
    assert (code, sorted(made)) == (0, ["inventory", "warehouse", "work"])
    own = json.loads(project("scripts/lake", "policies", **opened)[1])
    for user in users():
        written = {
            ("Allow", action.removeprefix("s3:"), place.removeprefix("arn:aws:s3:::"))
            for part in own[user]["Statement"]
            for action in part["Action"]
            for place in part["Resource"]
        }
        markers = {right for right in written if right[2].endswith("/") or "Version" in right[1]}
        found = set().union(*(said_of(policy, f"key-{user}") for policy in made.values()))
        if user != "metastore":
            assert found == written - markers, user
    writes = ("PutObject", "AbortMultipartUpload", "ListMultipartUploadParts", "DeleteObject")
    held = {right for right in said_of(made["warehouse"], "key-metastore") if right[1] in writes}
    assert held == {("Allow", action, "warehouse/*") for action in writes} | {
        ("Deny", action, place) for action in writes for place in ("warehouse/*/*/*", "warehouse/*/*.*")
    }, "folders of databases and of tables, and no file in them"


def test_the_longest_policy_of_a_bucket_has_room_in_an_attribute_of_ext4():
    longest = [f"{user}={user:k<20}" for user in users()]
    _, made, _ = bucket_policies(*longest, TRINO_DELTA_SECURITY="allow-all", SPARK_DROPS="allow")
    assert max(map(len, made.values())) < 3700


def test_a_user_without_a_key_of_its_own_is_in_no_policy_of_a_bucket():
    _, made, _ = bucket_policies("presto=p-key")
    assert list(made) == ["warehouse"]
    assert {key for part in json.loads(made["warehouse"])["Statement"] for key in part["Principal"]["AWS"]} == {"p-key"}


def test_a_right_that_versity_cannot_tell_from_another_is_refused(tmp_path):
    (tmp_path / "rights").write_text("x write warehouse/lake/*/\n")
    code, made, said = bucket_policies("x=x-key", rights=tmp_path / "rights")
    assert (code, made) == (1, {})
    assert "Versity knows no folders warehouse/lake/*/, only warehouse/*/" in said


@pytest.mark.parametrize(
    ("line", "said"), [("x may list", "there is no right may"), ("x read", "no place is named"), ("", "no rights")]
)
def test_a_file_of_rights_that_cannot_be_read_is_refused(tmp_path, line, said):
    (tmp_path / "rights").write_text(f"# a comment\n{line}\n")
    done = subprocess.run(
        [ROOT / "images/store/make-policies", tmp_path / "rights", "s3a://"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
