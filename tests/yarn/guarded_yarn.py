"""A YARN that asks for Kerberos beside an HDFS that does, and what applications of ann's are submitted with."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from guarded_hdfs import HOST, GuardedHdfs, Secured
from kdc import REALM
from lake_on_yarn import Lake
from yarn_cluster import YarnCluster

PRINCIPAL = f"ann@{REALM}"
RENEWAL_SECONDS = 60
"""A token of HDFS that nobody renews is refused after this time, which is a day by default."""
PATIENCE_MS = 600_000
"""A node that is silent for this long is lost, as is YARN's default: no test of this YARN loses one."""


class GuardedYarn(YarnCluster):
    """Its containers run as the NodeManager's user: a setuid program, which no jar has, would change to ann's."""

    def __init__(self, folder: Path, hdfs: GuardedHdfs, by: Secured) -> None:
        settings: dict[str, object] = {"yarn.nm.liveness-monitor.expiry-interval-ms": PATIENCE_MS}
        for name, short in (("resourcemanager", "rm"), ("nodemanager", "nm")):
            by.realm.keytab(f"{short}/{HOST}")
            settings |= by.service(f"yarn.{name}.principal", f"yarn.{name}.keytab", short)
        super().__init__(folder, hdfs, name=HOST, settings=settings, java_options=by.java_options)


class GuardedLake(Lake):
    """Applications are ann's; a process that submits knows the realm, and no more than it is given."""

    def __init__(self, hdfs: GuardedHdfs, yarn: GuardedYarn, archive: Path, by: Secured) -> None:
        super().__init__(hdfs, yarn, archive)
        self.java_options = (*Lake.java_options, *by.java_options)
        self.login = ("--principal", PRINCIPAL, "--keytab", str(hdfs.keytab))
        self.ticket = hdfs.ticket()
        """Variables of a process with a ticket of ann's."""
        self._known = _of_kerberos(hdfs.nothing())

    def with_a_ticket(self) -> Self:
        """The same, with a ticket of ann's for a process that submits."""
        other = copy.copy(self)
        other._known = _of_kerberos(self.ticket)
        return other

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of a process that submits."""
        java = " ".join([os.environ.get("SPARK_SUBMIT_OPTS", ""), *self.java_options])
        return {**super().environment, **self._known, "SPARK_SUBMIT_OPTS": java}

    @property
    def settings(self) -> Mapping[str, str]:
        """See ``Lake.settings``. The containers know the realm, as a node's /etc/krb5.conf tells them elsewhere."""
        realm = self._known["KRB5_CONFIG"]
        names = ("yarn.appMasterEnv", "executorEnv")
        return {**super().settings, **{f"spark.{name}.KRB5_CONFIG": realm for name in names}}


def _of_kerberos(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("KRB5")}
