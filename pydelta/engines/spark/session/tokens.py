"""Give the workers the delegation tokens that Spark's driver has now.

Spark that was given a keytab replaces its tokens long before they end, and sends them to the executors' JVMs. The
Python beside an executor sees only the file with which its container began, and nobody renews the tokens in it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from pydelta.storage.hdfs import KEYTAB, PRINCIPAL, TOKENS

__all__ = ["login_options"]

_OF_HDFS: Final = "HDFS_DELEGATION_TOKEN"


def login_options(conf: Mapping[str, str], view: Any) -> dict[str, str]:
    """Build the options with which HDFS lets the driver and its workers in, from what spark-submit was given.

    Args:
        conf: Settings of the session.
        view: The view of the JVM.

    Returns:
        The principal, the keytab and, where Spark has some, tokens. They are secret. Empty without a keytab.
    """
    login = {name: conf[name] for name in (PRINCIPAL, KEYTAB) if conf.get(name)}
    if len(login) < 2:
        return {}
    held = view.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    given = view.org.apache.hadoop.security.Credentials()
    for token in held.getAllTokens().toArray():  # The driver's others would let a worker act as the application.
        if str(token.getKind().toString()) == _OF_HDFS:
            given.addToken(token.getService(), token)
    if not given.numberOfTokens():
        return login
    written = view.java.io.ByteArrayOutputStream()
    stream = view.java.io.DataOutputStream(written)
    given.writeTokenStorageToStream(stream)
    return {**login, TOKENS: base64.b64encode(bytes(written.toByteArray())).decode()}
