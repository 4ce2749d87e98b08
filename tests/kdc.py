"""A Kerberos realm in a folder: MIT's KDC as an ordinary process on a free port of the loopback."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

REALM = "LAKE.TEST"
_PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/sbin"))


def lacking(*modules: str) -> list[str]:
    """What is not installed of what a test with Kerberos needs, by the names of its packages.

    Args:
        modules: Modules of Python that it needs beside the programs.
    """
    programs = {
        "krb5kdc": "krb5-kdc",
        "kdb5_util": "krb5-kdc",
        "kadmin.local": "krb5-admin-server",
        "kinit": "krb5-user",
    }
    gone = [package for program, package in programs.items() if shutil.which(program, path=_PLACES) is None]
    gone += [name for name in modules if importlib.util.find_spec(name) is None]
    return list(dict.fromkeys(gone))


class Realm:
    """Started by the constructor; ``stop`` ends the process that was started here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.configuration = folder / "krb5.conf"
        self.configuration.write_text(
            f"""[libdefaults]
 default_realm = {REALM}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {REALM} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {REALM}
"""
        )
        (folder / "kdc.conf").write_text(
            f"""[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {REALM} = {{
  database_name = {folder}/principals
  key_stash_file = {folder}/stash
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
 }}
"""
        )
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KRB5")},
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder}/no-ticket",
            "PATH": _PLACES,
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master key of a test")
        program = str(shutil.which("krb5kdc", path=_PLACES))
        self._log = (folder / "kdc.log").open("wb")
        self._process = subprocess.Popen(
            [program, "-n", "-r", REALM], env=self.environment, stdout=self._log, stderr=self._log
        )
        give_up = time.monotonic() + 30
        while True:
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise AssertionError("no KDC: " + (folder / "kdc.log").read_text(errors="replace"))
            time.sleep(0.05)

    def keytab(self, principal: str) -> Path:
        """A new principal (``hive/localhost``, ``ann``) and the file of its key."""
        path = self.folder / f"{principal.replace('/', '_')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}@{REALM}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}@{REALM}")
        return path

    def with_ticket(self, principal: str, keytab: Path) -> dict[str, str]:
        """An environment in which that principal has a ticket, as kinit gets it."""
        environment = {**self.environment, "KRB5CCNAME": f"FILE:{self.folder}/ticket-of-{principal.replace('/', '_')}"}
        self._run("kinit", "-k", "-t", str(keytab), f"{principal}@{REALM}", environment=environment)
        return environment

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def _run(self, program: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        found = str(shutil.which(program, path=_PLACES))
        done = subprocess.run(
            [found, *arguments], env=environment or self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
