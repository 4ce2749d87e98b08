"""An error after a commit says that the commit landed; all others pass as they are."""

from __future__ import annotations

import pytest

from pydelta.errors import CommittedError, InvalidArgumentError
from pydelta.txn.commit import landed, telling_what_landed


def test_a_failure_after_a_commit_names_the_version():
    with (
        pytest.raises(CommittedError, match=r"Version 7 was committed.*the cluster is gone") as told,
        telling_what_landed(),
    ):
        landed("s3://b/t", 6)
        landed("s3://b/t", 7)
        raise ConnectionRefusedError("the cluster is gone\n\tat a.trace")
    assert (told.value.table, told.value.version, told.value.exit_code) == ("s3://b/t", 7, 3)
    assert "history" in told.value.hint
    assert "trace" not in str(told.value)


def test_a_failure_before_it_passes():
    with pytest.raises(ConnectionRefusedError), telling_what_landed():
        raise ConnectionRefusedError


def test_an_error_that_was_raised_on_purpose_passes():
    with pytest.raises(InvalidArgumentError), telling_what_landed():
        landed("t", 1)
        raise InvalidArgumentError("of the command")


def test_what_a_statement_within_it_committed_is_not_of_the_outer_one():
    with pytest.raises(ValueError, match="next statement"), telling_what_landed():
        with telling_what_landed():
            landed("t", 1)
        raise ValueError("of the next statement")


def test_outside_of_a_statement_nothing_is_noted():
    landed("t", 1)
    with pytest.raises(ValueError, match="later"), telling_what_landed():
        raise ValueError("later")
