"""What ``make up STORE=external`` says of an S3 that somebody else runs, before anything is started on it."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from leaks import secret

PROGRAM = Path(__file__).resolve().parents[2] / "images" / "spark" / "bin" / "check-places"


@pytest.fixture
def check(s3_server):
    """Runs the program; exit code, output, errors."""

    def run(*places, endpoint=s3_server.endpoint):
        settings = s3_server.options()
        env = os.environ | {
            "S3_ENDPOINT": endpoint,
            "PYDELTA_FS_S3A_ENDPOINT": endpoint,
            "PYDELTA_FS_S3A_PATH_STYLE_ACCESS": "true",
            "AWS_ACCESS_KEY_ID": settings["spark.hadoop.fs.s3a.access.key"],
            "AWS_SECRET_ACCESS_KEY": settings["spark.hadoop.fs.s3a.secret.key"],
        }
        done = subprocess.run([sys.executable, PROGRAM, *places], env=env, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def bucket(s3_server):
    made = urllib.request.Request(f"{s3_server.endpoint}/acme-warehouse", method="PUT")
    urllib.request.urlopen(made, timeout=30).close()
    return "acme-warehouse"


def test_places_that_will_do_are_left_as_they_were(check, bucket, s3_server):
    code, said, wrong = check(f"s3a://{bucket}", f"s3a://{bucket}/lake/work-")
    assert (code, wrong) == (0, "")
    assert said.splitlines() == [
        f"s3a://{bucket}: there, and safe for commits",
        f"s3a://{bucket}/lake/work-: there, and safe for commits",
    ]
    with urllib.request.urlopen(f"{s3_server.endpoint}/{bucket}", timeout=30) as listing:
        assert b"<Contents>" not in listing.read()


def test_the_bucket_that_is_missing_is_named_and_the_others_are_not_blamed(check, bucket):
    code, said, wrong = check(f"s3a://{bucket}", "s3a://acme-inventory")
    assert code == 4
    assert f"s3a://{bucket}: there" in said
    assert "s3a://acme-inventory: will not do" in said
    assert "there is no such bucket" in wrong
    assert f"needs the buckets {bucket}, acme-inventory" in wrong
    assert "set S3_ENDPOINT, S3_REGION, S3_ACCESS_KEY, S3_SECRET_KEY and S3_ROOT in .env" in wrong
    assert secret("s3") not in said + wrong
    assert "Traceback" not in wrong


def test_a_store_that_lets_two_writers_win_will_not_do(check, bucket, s3_server):
    s3_server.ignore_conditions = True
    try:
        code, _, wrong = check(f"s3a://{bucket}")
    finally:
        s3_server.ignore_conditions = False
    assert code == 4
    assert "UNSAFE" in wrong


def test_an_address_at_which_nobody_answers(check):
    code, _, wrong = check("s3a://acme-warehouse", endpoint="http://127.0.0.1:1")
    assert code == 4
    assert "cannot be reached" in wrong
    assert "at http://127.0.0.1:1" in wrong
