"""What makes a stack a secure one: said once, noted in .env, taken by every later command, and taken back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import stack_files
import yaml

from catalog_sync.thrift.client import MetastoreAddress
from jobs.verify.trino import Trino
from pydelta.errors import InvalidArgumentError

ROOT = Path(__file__).resolve().parents[2]
SECURE = ROOT / "trino_conf" / "secure"
ASKED = 'echo "$SECURE|$METASTORE_TLS|$TRINO_SCHEME|$STORE_ENDPOINT|$COMPOSE_FILE|$PROFILES"'
YES = "yes|true|https|https://minio:9000|docker-compose.yml:docker-compose.secure.yml|"
NO = "no|false|http|http://minio:9000|docker-compose.yml|"


@pytest.fixture
def scripts(tmp_path):
    """Runs a line after what the stack's scripts source, where no docker answers."""
    run = stack_files.scripts_in(tmp_path)
    run.folder = tmp_path
    return run


def test_it_is_asked_for_by_a_variable_or_as_a_profile_and_env_keeps_it(scripts):
    asked = f"source scripts/stack-lib; {ASKED}"
    assert scripts(asked) == NO
    assert scripts(asked, PROFILES="secure") == YES
    assert scripts(asked, PROFILES="kafka,secure,serve") == YES + "kafka,serve"
    scripts("scripts/make-env", SECURE="yes")
    assert scripts(asked) == YES
    lines = (scripts.folder / ".env").read_text().splitlines()
    secrets = {line.partition("=")[0]: line.partition("=")[2] for line in lines if line.startswith("TRINO_")}
    made = [secrets[name] for name in ("TRINO_ADMIN_PASSWORD", "TRINO_READER_PASSWORD", "TRINO_SHARED_SECRET")]
    assert len(set(made)) == 3
    assert min(map(len, made)) >= 24
    scripts("scripts/make-env", SECURE="no")
    assert scripts(asked) == NO
    scripts("scripts/make-env", SECURE="yes")
    assert made[0] in (scripts.folder / ".env").read_text()


def test_a_stack_whose_env_is_lost_stays_a_secure_one_and_one_that_was_taken_back_stays_so(scripts):
    (scripts.folder / "docker").write_text('#!/bin/sh\n[ "$1 $2" != "volume ls" ] || echo lakehouse_tls-ca\n')
    asked = f"source scripts/stack-lib; {ASKED}"
    assert scripts(asked) == YES
    scripts("scripts/make-env", SECURE="no")
    assert scripts(asked) == NO
    (scripts.folder / ".env").unlink()
    scripts("scripts/make-env")
    assert scripts(asked) == YES
    assert "TRINO_ADMIN_PASSWORD=" in (scripts.folder / ".env").read_text()


def test_nobody_but_admin_may_write_or_see_what_others_ask():
    rules = json.loads((SECURE / "rules.json").read_text())
    assert [rule["user"] for rule in rules["catalogs"]] == ["admin", "reader"]
    assert rules["catalogs"][1]["allow"] == "read-only"
    assert [rule["privileges"] for rule in rules["tables"] if rule["user"] == "reader"] == [["SELECT"]]
    assert [rule["allow"] for rule in rules["queries"] if rule["user"] == "reader"] == [["execute"]]
    # Superset asks under the names of these users: docs/guides/bi.md
    assert rules["impersonation"] == [{"original_user": "superset", "new_user": "admin|reader"}]


def test_the_environment_says_that_the_metastore_speaks_tls(monkeypatch):
    assert not MetastoreAddress.parse("thrift://a:1").tls
    monkeypatch.setenv("PYDELTA_METASTORE_TLS", "true")
    monkeypatch.setenv("PYDELTA_METASTORE_CA", "ca.pem")
    found = MetastoreAddress.parse("thrift://a:1")
    assert (found.tls, found.ca_file) == (True, "ca.pem")
    assert MetastoreAddress.parse("thrift://a:1", ca_file="mine.pem").ca_file == "mine.pem"
    monkeypatch.setenv("PYDELTA_METASTORE_TLS", "yes")
    with pytest.raises(InvalidArgumentError, match="PYDELTA_METASTORE_TLS is 'yes'"):
        MetastoreAddress.parse("thrift://a:1")


def test_a_password_is_sent_by_tls_alone():
    assert "Authorization" in Trino("https://trino:8443", "admin", password="secret")._headers
    assert "Authorization" not in Trino("trino:8080", "admin", password="secret")._headers


def test_every_service_with_a_key_of_the_store_trusts_its_certificate_or_is_refused(scripts):
    services = stack_files.services()
    changed = yaml.safe_load((ROOT / "docker-compose.secure.yml").read_text())
    trusting = {name for name, said in changed["services"].items() if changed["x-trust"] in said.get("volumes", [])}
    preflight = (ROOT / "scripts" / "stack-preflight").read_text()
    refused = {"versity", *re.findall(r"for profile in ([\w ]+); do\n +! asked", preflight)[0].split()}
    keyed = {name for name, said in services.items() if "AWS_ACCESS_KEY_ID" in said.get("environment", {})}
    assert len(keyed) > 8
    assert {name for name in keyed - trusting if not refused & set(services[name].get("profiles", []))} == set()
