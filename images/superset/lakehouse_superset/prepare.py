"""Bring Superset's users, sources and dashboards up to date: ``python -m lakehouse_superset.prepare``, before a start.

Sources follow the stack at each start. A dashboard is imported once: what people change in it stays, and one that they
delete comes again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from superset.app import create_app

from lakehouse_superset.assets import Dashboard, bundle
from lakehouse_superset.dashboards import FLIGHTS, shop
from lakehouse_superset.known_users import USERS_FILE
from lakehouse_superset.sources import SQL_SERVER, TRINO, Source, sources_of
from lakehouse_superset.users import READER, StackSecurityManager
from pydelta.errors import DeltaError


def main() -> int:
    """Prepare Superset; 1 if the stack's users cannot be read."""
    try:
        app = create_app()
    except DeltaError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    with app.app_context():
        from superset.extensions import db, security_manager  # They exist once the application does.

        sources = sources_of(os.environ, USERS_FILE.exists())
        for source in sources:
            _keep_source(db.session, source)
        _drop_other_sources(db.session, {source.uuid for source in sources})
        db.session.commit()
        _make_reader(security_manager, db.session)
        _keep_users(security_manager)
        for dashboard in dashboards_of(os.environ):
            _import_once(dashboard, security_manager, db.session)
    return 0


def dashboards_of(environment: Mapping[str, str]) -> list[Dashboard]:
    """List the dashboards of a stack.

    Args:
        environment: ``BI_DEMO`` is ``no`` without the flights; ``BI_SHOP`` is the schema of the sample database's
            tables, empty where the stack does not capture it.
    """
    found = [FLIGHTS] if environment.get("BI_DEMO", "yes") == "yes" else []
    return [*found, shop(environment["BI_SHOP"])] if environment.get("BI_SHOP") else found


def _keep_source(session: Any, source: Source) -> None:
    from superset.models.core import Database

    found = session.query(Database).filter_by(uuid=source.uuid).one_or_none()
    if found is None:
        found = Database(uuid=source.uuid, database_name=source.name, expose_in_sqllab=True, allow_dml=False)
        session.add(found)
    found.set_sqlalchemy_uri(source.uri)
    found.extra = source.extra_text()
    found.impersonate_user = source.as_user
    session.flush()


def _drop_other_sources(session: Any, kept: set[Any]) -> None:
    """Remove the SQL server's source where it is not offered any more. Sources of people stay."""
    from superset.models.core import Database

    if SQL_SERVER not in kept:
        session.query(Database).filter_by(uuid=SQL_SERVER).delete()


def _make_reader(manager: Any, session: Any) -> None:
    """Make the role of those who may not do everything: they see dashboards and ask Trino, each under her own name."""
    from superset.models.core import Database

    trino = session.query(Database).filter_by(uuid=TRINO).one()
    manager.add_permission_view_menu("database_access", trino.perm)
    role = manager.add_role(READER)
    permissions = {*manager.find_role("Gamma").permissions, *manager.find_role("sql_lab").permissions}
    permissions.add(manager.find_permission_view_menu("database_access", trino.perm))
    role.permissions = list(permissions)
    session.commit()


def _keep_users(manager: StackSecurityManager) -> None:
    for user in manager.get_all_users():
        manager.give_role(user)


def _import_once(dashboard: Dashboard, manager: Any, session: Any) -> None:
    from superset.commands.dashboard.importers.v1 import ImportDashboardsCommand
    from superset.models.core import Database
    from superset.models.dashboard import Dashboard as Stored
    from superset.utils.core import override_user

    if session.query(Stored).filter_by(uuid=dashboard.uuid).count():
        return
    name = session.query(Database).filter_by(uuid=TRINO).one().database_name
    with override_user(_importer(manager)):
        ImportDashboardsCommand(bundle(dashboard, TRINO, name)).run()
    print(f"dashboard {dashboard.slug}: imported")


def _importer(manager: Any) -> Any:
    """Return a user who may import: an admin of the stack, made where she has not logged in yet."""
    name = next(user.name for user in manager.stack_users.users.values() if user.role.admin)
    found = manager.find_user(username=name) or manager.make_user(name)
    manager.give_role(found)
    return found


if __name__ == "__main__":
    sys.exit(main())
