"""An HDFS that asks for Kerberos: each server has a principal of localhost, and its key in a keytab."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hadoop_servers import asked
from hdfs_cluster import NOTHING, HdfsCluster
from kdc import REALM, Realm

ROOT = Path(__file__).resolve().parents[2]
HOST = "localhost"
SERVICES = ("nn", "dn", "HTTP")


@dataclass(frozen=True)
class Secured:
    """What HdfsCluster takes to be secured by a realm.

    Args:
        realm: It has the services' principals from the start.
        protection: Of what clients and servers send: ``authentication``, ``integrity`` or ``privacy``.
    """

    realm: Realm
    protection: str = "privacy"

    def __post_init__(self) -> None:
        for name in SERVICES:
            self.realm.keytab(f"{name}/{HOST}")

    @property
    def java_options(self) -> tuple[str, ...]:
        """Of each JVM that knows the realm."""
        return (f"-Djava.security.krb5.conf={self.realm.configuration}",)

    @property
    def core(self) -> dict[str, object]:
        """Lines of core-site.xml, for servers and clients."""
        return {
            "hadoop.security.authentication": "kerberos",
            "hadoop.security.authorization": "true",
            "hadoop.rpc.protection": self.protection,
        }

    @property
    def hdfs(self) -> dict[str, object]:
        """Lines of hdfs-site.xml. A DataNode on a port that everybody may take asks for this exception."""
        return {
            **self.service("dfs.namenode.kerberos.principal", "dfs.namenode.keytab.file", "nn"),
            **self.service("dfs.datanode.kerberos.principal", "dfs.datanode.keytab.file", "dn"),
            **self.service(
                "dfs.web.authentication.kerberos.principal", "dfs.web.authentication.kerberos.keytab", "HTTP"
            ),
            "dfs.block.access.token.enable": "true",
            "dfs.data.transfer.protection": self.protection,
            "ignore.secure.ports.for.testing": "true",
        }

    def service(self, principal: str, keytab: str, name: str) -> dict[str, object]:
        """Name a service's principal and its keytab in two lines."""
        file = self.realm.folder / f"{name}_{HOST}.keytab"
        return {principal: f"{name}/{HOST}@{REALM}", keytab: file}


DIRECTORIES = """
import sys
from hdfs_native import Client
client = Client(sys.argv[1])
client.mkdirs("/of-another", 0o755, True)
for path in ("/lake", "/shared", "/user/ann"):
    client.mkdirs(path, 0o755, True)
    client.set_owner(path, "ann", "ann")
"""


class GuardedHdfs(HdfsCluster):
    """It has one user, ann, with directories there; the superuser is the NameNode's principal.

    Args:
        folder: Of its files; it is there.
        by: What secures it.
        settings: More lines of hdfs-site.xml.
    """

    def __init__(self, folder: Path, by: Secured, settings: Mapping[str, object] = NOTHING) -> None:
        lines = {**by.hdfs, **settings}
        super().__init__(folder, name=HOST, core=by.core, settings=lines, java_options=by.java_options)
        self._realm = by.realm
        self.keytab = by.realm.keytab("ann")
        superuser = by.realm.with_ticket(f"nn/{HOST}", by.realm.folder / f"nn_{HOST}.keytab")
        command = [sys.executable, "-c", DIRECTORIES, self.uri]
        done = subprocess.run(command, env=self._client(superuser), capture_output=True, text=True, check=False)
        if done.returncode:
            self.stop()
            raise AssertionError(done.stderr)

    def ticket(self) -> dict[str, str]:
        """Variables of a process with a ticket of ann's, as kinit gets it."""
        return self._client(self._realm.with_ticket("ann", self.keytab))

    def keytab_alone(self) -> dict[str, str]:
        """Variables of a process that gets its tickets with ann's keytab, without kinit."""
        cache = self._realm.folder / "by-keytab"
        own = {"KRB5CCNAME": f"FILE:{cache}", "KRB5_CLIENT_KTNAME": f"FILE:{self.keytab}"}
        return self._client({**self._realm.environment, **own})

    def token_alone(self, file: Path) -> dict[str, str]:
        """Variables of a process with a delegation token of ann's in that file, as a container of YARN has it."""
        self._about_token("--renewer", "ann", str(file))
        assert file.exists()
        return {**self.nothing(), "HADOOP_TOKEN_FILE_LOCATION": str(file)}

    def renewals(self) -> int:
        """How many tokens the NameNode has renewed."""
        name = f"Hadoop:service=NameNode,name=RpcDetailedActivityForPort{self.port}"
        (found,) = asked(f"http://127.0.0.1:{self._web}/jmx?qry={name}")["beans"]
        return int(found["RenewDelegationTokenNumOps"])

    def cancel(self, file: Path) -> None:
        """Cancel the token of ann's in that file: the NameNode no longer knows it, as after it has expired."""
        self._about_token("--cancel", str(file))

    def nothing(self) -> dict[str, str]:
        """Variables of a process that knows the realm and nobody there."""
        return self._client(self._realm.environment)

    def _about_token(self, *arguments: str) -> None:
        command = [*self.machine(self.conf), "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher", *arguments]
        done = subprocess.run(command, env=self.ticket(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def _client(self, environment: Mapping[str, str]) -> dict[str, str]:
        named = {name: value for name, value in environment.items() if not name.startswith("HADOOP")}
        return {**named, "HADOOP_CONF_DIR": str(self.conf), "PYTHONPATH": str(ROOT)}
