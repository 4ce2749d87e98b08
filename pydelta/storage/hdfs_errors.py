"""Translate an hdfs-native exception into ours, with the server's message but without its stack trace.

The client raises Python's own classes, with the server's exception in their text, in Rust's notation:
``RPCError("org.apache.hadoop.….SafeModeException", "…")``. The lines of the trace follow an escaped newline.
"""

from __future__ import annotations

import re
from typing import Final

from pydelta.errors import ObjectNotFoundError, StorageError, StorageFullError, StoragePermissionError

__all__ = ["exists_already", "is_outage", "to_storage_error"]

_ANSWER: Final = re.compile(r'^(?P<kind>\w+)\((?:"(?P<java>[\w.$]+)", )?"(?P<text>.*)"\)$', re.DOTALL)
_LOGIN: Final = re.compile(r'^GSSAPIError\(GssMajorCodes \{[^}]*\}, \d+, "(?P<text>.*)"\)$', re.DOTALL)
_TRACE: Final = re.compile(r"(?:\\n|\n).*", re.DOTALL)
_DEBUG: Final = re.compile(r": \[?\w+ \{.*", re.DOTALL)
_LONGEST: Final = 300
_FINAL: Final = ("ParentNotDirectory", "InvalidPath", "PathIsNotEmptyDirectory", "AlreadyExists", "UnresolvedLink")
"""Kinds of exceptions that will not succeed on retry."""


def exists_already(error: Exception) -> bool:
    """Return whether the error says that the new name is already taken."""
    return isinstance(error, FileExistsError) or "AlreadyExists" in _head(error)


def is_outage(error: Exception) -> bool:
    """Return whether no server answered, so that all other requests would most likely fail, too."""
    return not isinstance(error, PermissionError) and "Exception" not in _head(error)


def to_storage_error(where: str, error: Exception) -> StorageError:
    """Build the error to raise for a failed request.

    Args:
        where: URI of the file.
        error: Exception of the client.
    """
    head, said = _head(error), _said(error)
    if isinstance(error, PermissionError) or "AccessControlException" in head:
        return StoragePermissionError(
            f"{where}: permission denied ({said}).", hint="Check the user (HADOOP_USER_NAME) and the directory's mode."
        )
    if "GSSAPI" in head or "libgssapi" in head:
        return StoragePermissionError(
            f"{where}: Kerberos refused access ({said}).",
            hint="Get a ticket with kinit (klist shows it), or set KRB5_CLIENT_KTNAME to a keytab; an application of "
            "Spark takes the --principal and --keytab of spark-submit. MIT's libgssapi_krb5.so.2 must be installed.",
        )
    if "InvalidToken" in head:
        return StoragePermissionError(
            f"{where}: the delegation token of this process is no longer valid ({said}).",
            hint="It has expired or was cancelled. Start the application again; give it --principal and --keytab if it "
            "must live longer than its tokens.",
        )
    if "RPC listener disconnected" in head:
        return StorageError(
            f"{where}: the NameNode closed the connection.",
            retryable=True,
            hint="If it asks for Kerberos, set HADOOP_CONF_DIR to the folder of its core-site.xml, or "
            "hadoop.security.authentication to kerberos. Otherwise check that the NameNode is up.",
        )
    if "QuotaExceeded" in head or "QuotaByStorageTypeExceeded" in head:
        return StorageFullError(f"{where} could not be written ({said}).", hint="Raise the quota or free space.")
    if "SafeMode" in head:
        return StorageError(
            f"{where}: the NameNode is in safe mode.", retryable=True, hint="Wait until it has left safe mode."
        )
    if isinstance(error, FileNotFoundError):
        return ObjectNotFoundError(f"{where} does not exist ({said}).")
    if "InvalidPath" in head:
        return StorageError(
            f"{where}: HDFS does not allow this name ({said}).", hint="Leave out ':', and names that are '.' or '..'."
        )
    if "DataTransferError" in head or "Failed to complete file" in head or "could only be written" in said:
        return StorageError(
            f"{where}: no DataNode wrote or returned the data ({said}).",
            retryable=True,
            hint="Check that the DataNodes are up, have space and are reachable from here "
            "(dfs.client.use.datanode.hostname=true if their addresses are not).",
        )
    return StorageError(
        f"{where}: {said}.",
        retryable=not isinstance(error, ValueError) and not any(kind in head for kind in _FINAL),
        hint="Check that the NameNode is reachable and that the user may do this.",
    )


def _head(error: Exception) -> str:
    """Return the text up to the server's stack trace."""
    return _TRACE.sub("", str(error))


def _said(error: Exception) -> str:
    """Return the server's message and the name of its exception."""
    text = str(error).strip()
    if (login := _LOGIN.match(text)) is not None:
        return login["text"].strip().rstrip(".")[:_LONGEST]
    found = _ANSWER.match(text)
    sentence, java = (found["text"], found["java"]) if found is not None else (text, None)
    sentence = _DEBUG.sub("", _TRACE.sub("", sentence)).replace('\\"', '"').replace("\\'", "'").strip().rstrip(".")
    name = (java or "").rpartition(".")[2]
    said = sentence[:_LONGEST] or type(error).__name__
    return f"{said}, {name}" if name and name != "IOException" else said
