"""Which of a session's settings reach the stores."""

from __future__ import annotations

import base64
from types import SimpleNamespace

import pytest

from pydelta.engines.spark import logs
from pydelta.engines.spark.calls import CurrentSettings
from pydelta.engines.spark.logs import SessionSettings
from pydelta.engines.spark.session.tokens import login_options

LOGIN = {"spark.kerberos.principal": "ann@LAKE.TEST", "spark.kerberos.keytab": "ann.keytab-1"}


class _Credentials:
    """As Hadoop's, as far as they are used here."""

    def __init__(self, *kinds):
        self.tokens = [SimpleNamespace(getKind=lambda kind=kind: kind, getService=lambda: "nn") for kind in kinds]

    def getAllTokens(self):  # Py4J shows a Java collection as an object that Python cannot iterate over.
        return SimpleNamespace(toArray=lambda: list(self.tokens))

    def addToken(self, service, token):
        self.tokens.append(token)

    def numberOfTokens(self):
        return len(self.tokens)

    def writeTokenStorageToStream(self, stream):
        stream.extend("".join(token.getKind().toString() for token in self.tokens).encode())


class _Kind(str):
    __slots__ = ()

    def toString(self):
        return str(self)


def _jvm(*kinds):
    """A JVM whose user holds tokens of these kinds."""
    user = SimpleNamespace(getCredentials=lambda: _Credentials(*map(_Kind, kinds)))
    security = SimpleNamespace(
        UserGroupInformation=SimpleNamespace(getCurrentUser=lambda: user), Credentials=_Credentials
    )
    buffer = SimpleNamespace(ByteArrayOutputStream=_Buffer, DataOutputStream=lambda written: written.data)
    org = SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(security=security)))
    return SimpleNamespace(org=org, java=SimpleNamespace(io=buffer))


class _Buffer:
    def __init__(self):
        self.data = bytearray()

    def toByteArray(self):
        return bytes(self.data)


def test_workers_are_given_the_tokens_of_hdfs_and_no_others():
    found = login_options({**LOGIN, "spark.app.name": "x"}, _jvm("YARN_AM_RM_TOKEN", "HDFS_DELEGATION_TOKEN"))
    assert found == LOGIN | {"pydelta.hdfs.tokens": base64.b64encode(b"HDFS_DELEGATION_TOKEN").decode()}
    assert login_options(LOGIN, _jvm("YARN_AM_RM_TOKEN")) == LOGIN


@pytest.mark.parametrize("name", LOGIN)
def test_without_a_keytab_the_jvm_is_not_asked(name):
    assert login_options({**LOGIN, name: ""}, None) == {}
    assert login_options({key: value for key, value in LOGIN.items() if key != name}, None) == {}


def test_the_log_in_of_spark_submit_and_named_stores_reach_the_stores(monkeypatch):
    conf = {**LOGIN, "spark.pydelta.logStore.oss": "stores:open", "spark.app.name": "x"}
    current = CurrentSettings(conf, "UTC", "zstd")
    session = SimpleNamespace(
        calls=SimpleNamespace(settings=lambda: current),
        hadoop_options=lambda: {"dfs.nameservices": "ha"},
        view=_jvm(),
    )
    monkeypatch.setattr(logs, "Jvm", SimpleNamespace(of=lambda spark: session))
    found = SessionSettings.of(object())
    assert found.options == LOGIN | {"spark.pydelta.logStore.oss": "stores:open", "dfs.nameservices": "ha"}
    assert found.stores == {"spark.pydelta.logStore.oss": "stores:open"}
    assert (found.time_zone, found.parquet_codec) == ("UTC", "zstd")
