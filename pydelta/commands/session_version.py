"""Tell whether a command has been committed already for the application and version of the session.

::

    spark.databricks.delta.write.txnAppId, txnVersion --> DELETE, UPDATE, MERGE: once for each version
    (a writer's own options go before the session's: ``WriteOptions``)
"""

from __future__ import annotations

from pydelta.settings import Settings
from pydelta.txn import OptimisticTransaction

__all__ = ["landed_before"]


def landed_before(txn: OptimisticTransaction, settings: Settings | None) -> bool:
    """Let the commit count as the session's version of its application, where the session names one.

    Args:
        txn: The command's transaction.
        settings: The session's; None for a command without a session.

    Returns:
        Whether the table has this version or a later one already: then there is nothing to do.

    Raises:
        InvalidArgumentError: The session names the application or the version, and not both.

    Protocol: "Transaction Identifiers".
    """
    app_id, version = (None, None) if settings is None else settings.transaction
    return app_id is not None and version is not None and not txn.commit_once(app_id, version)
