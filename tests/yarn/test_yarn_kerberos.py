"""Applications on a YARN that asks for Kerberos, beside an HDFS that does; with a KDC of the test's own."""

from __future__ import annotations

import time

import pytest
from guarded_yarn import RENEWAL_SECONDS
from submitting import rows_that_it_leaves

from pydelta.log import DeltaLog


@pytest.fixture(autouse=True)
def as_ann(guarded, monkeypatch):
    """What this process itself reads and writes is ann's."""
    for name, value in guarded.ticket.items():
        if name.startswith(("KRB5", "HADOOP")):
            monkeypatch.setenv(name, value)


def _succeeded(guarded, table, code, said):
    found = guarded.yarn.application(said)
    assert code == 0, said[-3000:] + guarded.yarn.container_logs(found["id"])[-9000:]
    assert (found["user"], found["finalStatus"]) == ("ann", "SUCCEEDED")
    assert guarded.rows(table) == guarded.rows(f"{table} copied") == rows_that_it_leaves()
    assert DeltaLog.for_table(table).update().version == 4
    return said + guarded.yarn.container_logs(found["id"])


def _longer_than_a_token(guarded, submission, gate, *, renewed):
    """Wait at the gate until the tokens that the workers there have would have ended, and for a renewal if asked."""
    while submission.process.poll() is None and not list(gate.iterdir()):
        time.sleep(0.1)
    before, end = guarded.hdfs.renewals(), time.monotonic() + RENEWAL_SECONDS + 5
    while submission.process.poll() is None:
        if time.monotonic() > end and (not renewed or guarded.hdfs.renewals() > before):
            break
        time.sleep(0.5)
    (gate / "open").touch()


def test_principal_and_keytab_of_spark_submit_let_a_driver_here_in(guarded, tmp_path):
    """The submitting process has no ticket, and no variable names the keytab."""
    table = guarded.new_table()
    with guarded.submit("client", [table, "--copy"], *guarded.login, folder=tmp_path) as submission:
        code, said = submission.ended()
    written = _succeeded(guarded, table, code, said)
    assert "rows 902 on yarn" in written
    assert "a dry run of VACUUM names 0 files" in written


def test_with_a_keytab_an_application_in_the_cluster_outlives_its_tokens(guarded, tmp_path):
    """The tokens with which the executors began end while the first write waits; nobody renews them."""
    table, gate = guarded.new_table(), tmp_path / "gate"
    gate.mkdir()
    job = [table, "--copy", "--gate", str(gate)]
    with guarded.submit("cluster", job, *guarded.login, folder=tmp_path) as submission:
        _longer_than_a_token(guarded, submission, gate, renewed=False)
        code, said = submission.ended()
    written = _succeeded(guarded, table, code, said)
    assert "a dry run of VACUUM names 0 files" in written


def test_with_a_ticket_alone_the_driver_in_the_cluster_goes_on_by_its_token_which_is_renewed(guarded, tmp_path):
    table, gate = guarded.new_table(), tmp_path / "gate"
    gate.mkdir()
    job = [table, "--copy", "--gate", str(gate)]
    with guarded.with_a_ticket().submit("cluster", job, folder=tmp_path) as submission:
        _longer_than_a_token(guarded, submission, gate, renewed=True)
        code, said = submission.ended()
    _succeeded(guarded, table, code, said)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_without_a_ticket_spark_submit_says_how_it_could_have_logged_in(guarded, tmp_path, mode):
    """This is Spark's own answer: the engine has not begun."""
    table = guarded.new_table()
    with guarded.submit(mode, [table], folder=tmp_path) as submission:
        code, said = submission.ended()
    assert code != 0
    assert "Client cannot authenticate via:[TOKEN, KERBEROS]" in said
    assert "Submitted application" not in said
