"""An LDAP server in a process of its own, on a free port of the loopback: UnboundID's, which keeps all in memory."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

from java_servers import fetch, java

JAR = "com.unboundid:unboundid-ldapsdk:7.0.4"
BASE = "ou=people,dc=lake,dc=test"
START_SECONDS = 120.0


class Directory:
    """Started by the constructor; ``stop`` ends the process that was started here.

    Args:
        folder: For its jar and what it says.
        passwords: Of each user.

    Raises:
        NotToBeHad: The jar cannot be fetched here.
    """

    def __init__(self, folder: Path, passwords: dict[str, str]) -> None:
        fetch(folder, JAR)
        entries = folder / "people.ldif"
        entries.write_text(
            "dn: dc=lake,dc=test\nobjectClass: domain\ndc: lake\n\n"
            f"dn: {BASE}\nobjectClass: organizationalUnit\nou: people\n"
            + "".join(
                f"\ndn: uid={user},{BASE}\nobjectClass: inetOrgPerson\nuid: {user}\ncn: {user}\nsn: {user}\n"
                f"userPassword: {password}\n"
                for user, password in passwords.items()
            )
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"ldap://127.0.0.1:{port}"
        self._said = folder / "said.txt"
        command = [java(), "-Xmx64m", "-jar", next(folder.glob("unboundid-ldapsdk*.jar")), "in-memory-directory-server"]
        command += ["--port", port, "--baseDN", "dc=lake,dc=test", "--ldifFile", entries]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(list(map(str, command)), stdout=said, stderr=said)
        give_up = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as link:
                if link.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.stop()
                raise AssertionError("no directory: " + self._said.read_text(errors="replace"))
            time.sleep(0.1)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
