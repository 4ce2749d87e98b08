"""How make up waits: what it says, and when it gives up. Docker is a stand-in whose containers a case describes."""

from __future__ import annotations

import os
import shutil
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import stack_files
import yaml

ROOT = Path(__file__).resolve().parents[2]

STAND_IN = """#!/bin/bash
folder=$(dirname "$0")
case "$*" in
  "compose config") cat "$folder/config" ;;
  "compose "*" up "*)
    echo "$*" >>"$folder/ups"
    sleep "${UP_TAKES:-0}"; cat "$folder/up" >&2; exit "${UP_CODE:-0}" ;;
  "compose logs "*) echo "the last line of ${*: -1}" ;;
  "ps -aq"*) echo one ;;
  "inspect --format {{with"*) echo "@check"; echo "its check says no" ;;
  "inspect "*)
    count=$(($(cat "$folder/looks" 2>/dev/null || echo 0) + 1)); echo $count >"$folder/looks"
    [ -e "$folder/look$count" ] || count=last
    sed "s/NOW/$(date -u +%FT%TZ)/; s/OLD/2020-01-01T00:00:00Z/" "$folder/look$count" ;;
esac
"""


@pytest.fixture
def wait(tmp_path):
    """Runs the script against the looks of a case: its exit code and what it said."""
    project, tools = tmp_path / "project", tmp_path / "bin"
    shutil.copytree(ROOT / "scripts", project / "scripts")
    shutil.copy(ROOT / "pyproject.toml", project)
    tools.mkdir()
    (tools / "docker").write_text(STAND_IN)
    (tools / "docker").chmod(0o755)

    def run(*looks, up="", services=(), needs=None, **env):
        known = [line.split()[0] for line in looks[-1].splitlines()]
        (tools / "config").write_text(_configuration({name: {} for name in known} | (needs or {})))
        for path in (tools / "ups", *tools.glob("look*")):
            path.unlink(missing_ok=True)
        for number, look in enumerate(looks, 1):
            (tools / f"look{number}").write_text(look)
        (tools / "looklast").write_text(looks[-1])
        (tools / "up").write_text(up)
        done = subprocess.run(
            [project / "scripts" / "stack-wait", *services],
            cwd=project,
            env={"PATH": f"{tools}:{os.environ['PATH']}", "LAKEHOUSE_WAIT_TICK": "0.1"} | env,
            capture_output=True,
            text=True,
            check=False,
        )
        run.ups = (tools / "ups").read_text().splitlines() if (tools / "ups").exists() else []
        return done.returncode, done.stdout + done.stderr

    return run


def _configuration(needs):
    """What ``docker compose config`` says of services, each with the conditions of those that it depends on."""
    lines = ["name: tried", "services:"]
    for service, conditions in needs.items():
        lines += [f"  {service}:", "    command:", "      - one"]
        if conditions:
            lines.append("    depends_on:")
        for name, condition in conditions.items():
            lines += [f"      {name}:", f"        condition: service_{condition}", "        required: true"]
        lines += ["    environment:", "      NAME: value"]
    return "\n".join([*lines, "networks:", "  lake:", "    internal: true", ""])


READY = "trino running healthy 0 0 NOW\nminio-init exited - 0 0 NOW\n"


def test_services_that_are_healthy_and_steps_that_ended_well_are_all_that_is_waited_for(wait):
    starting = READY.replace("healthy", "starting")
    assert wait(READY) == (0, "")
    code, said = wait(starting, starting, starting, READY)
    assert (code, said) == (0, "  waiting for trino (running, 0 s)\n")


def test_a_service_that_is_not_healthy_after_a_minute_is_said_once_with_its_last_lines(wait):
    late = "trino running starting 0 0 OLD\n"
    code, said = wait(late, late, late, late, READY)
    assert code == 0
    assert said.count("trino is not healthy after") == 1
    assert "its check says no" in said
    assert "the last line of trino" in said


def test_a_service_that_keeps_dying_ends_the_wait(wait):
    dying = [f"trino restarting starting 1 {count} NOW\n" for count in range(2, 7)]
    code, said = wait(*dying)
    assert code == 1
    assert "trino has died 3 times since this start" in said
    assert "the last line of trino" in said
    assert "make logs SERVICE=trino" in said


def test_a_container_that_was_killed_before_is_started_and_one_that_ends_is_told(wait):
    killed = "trino exited - 137 0 OLD\n"
    assert wait(killed, READY, UP_TAKES="0.5")[0] == 0
    code, said = wait("minio-init exited - 3 0 NOW\n")
    assert code == 1
    assert "minio-init ended with exit code 3" in said


def test_a_start_that_compose_refuses_is_said_in_its_words(wait):
    code, said = wait(READY, up="no such image: trino", UP_CODE="1")
    assert code == 1
    assert "no such image: trino" in said


def test_a_service_that_stays_ill_is_waited_for_until_the_limit_and_what_needs_it_is_not_started(wait):
    slow = "hive-metastore running unhealthy 0 0 NOW\n"
    needs = {"hive-metastore": {}, "trino": {"hive-metastore": "healthy"}}
    code, said = wait(slow, needs=needs, LAKEHOUSE_START_SECONDS="2")
    assert code == 1
    assert "Not every service became healthy in 2 s: hive-metastore (running" in said
    assert "the last line of hive-metastore" in said
    assert [words.split("--no-deps ")[1] for words in wait.ups] == ["hive-metastore"]


def test_a_service_is_started_alone_once_what_it_needs_is_ready(wait):
    """Compose would make again what depends on a service that it makes again."""
    needs = {
        "minio": {}, "minio-init": {"minio": "healthy"}, "namenode": {}, "datanode": {"namenode": "started"},
        "trino": {"minio-init": "completed_successfully", "versity-init": "completed_successfully"},
    }  # fmt: skip
    first = "minio running starting 0 0 NOW\nnamenode running starting 0 0 NOW\n"
    second = first.replace("starting", "healthy") + "minio-init running - 0 0 NOW\ndatanode running - 0 0 NOW\n"
    third = second.replace("minio-init running", "minio-init exited") + "trino running healthy 0 0 NOW\n"
    assert wait("", first, first, first, second, second, third, needs=needs)[0] == 0
    assert all("up -d --no-build --no-deps" in words for words in wait.ups)
    assert [words.split("--no-deps ")[1] for words in wait.ups] == ["minio namenode", "datanode", "minio-init", "trino"]


def test_of_what_a_named_service_needs_only_what_is_not_ready_is_started(wait):
    needs = {"postgres": {}, "minio": {}, "metastore": {"postgres": "healthy", "minio": "healthy"}, "ui": {}}
    ready = "".join(f"{name} running healthy 0 0 NOW\n" for name in ("postgres", "minio", "metastore", "ui"))
    ill = ready.replace("minio running healthy", "minio exited -")
    assert wait(ill, ready, needs=needs, services=["metastore"])[0] == 0
    assert [words.split("--no-deps ")[1] for words in wait.ups] == ["minio", "metastore"]


def test_only_the_services_that_are_named_are_waited_for(wait):
    looks = "trino running healthy 0 0 NOW\nscheduler running unhealthy 0 0 NOW\n"
    assert wait(looks, services=["trino"]) == (0, "")


def test_no_service_s_check_lets_it_be_ill_for_longer_than_a_minute_unsaid():
    periods = [
        part.split("}")[0] for path in stack_files.FILES for part in path.read_text().split("start_period: ")[1:]
    ]
    assert set(periods) == {"60s"}


def test_compose_s_own_words_for_the_stack_are_read_as_they_are_meant():
    """Each dependency is to something that can be ready, and no two services wait for each other."""
    needs = {}
    secure = yaml.safe_load((ROOT / "docker-compose.secure.yml").read_text())["services"]
    for services in (stack_files.services(), secure):
        for service, known in services.items():
            needs.setdefault(service, {}).update(known.get("depends_on", {}))
    ordered = list(TopologicalSorter({service: set(depends) for service, depends in needs.items()}).static_order())
    assert set(ordered) == set(needs)
    conditions = {depends["condition"] for each in needs.values() for depends in each.values()}
    assert conditions == {"service_healthy", "service_started", "service_completed_successfully"}
