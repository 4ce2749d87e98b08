"""Set Superset up for the stack: SUPERSET_CONFIG_PATH names this file. The environment has addresses and secrets."""

from __future__ import annotations

import os
from datetime import timedelta

from sqlalchemy.engine import URL

from lakehouse_superset.users import StackSecurityManager

SECRET_KEY = os.environ["BI_SECRET_KEY"]
SQLALCHEMY_DATABASE_URI = os.environ.get("BI_DATABASE_URI") or URL.create(
    "postgresql+psycopg2",
    username="superset",
    password=os.environ["BI_DATABASE_PASSWORD"],
    host="bi-database",
    database="superset",
).render_as_string(hide_password=False)
CUSTOM_SECURITY_MANAGER = StackSecurityManager
# Two users of the stack may have names that differ in case alone.
AUTH_USERNAME_CI = False
AUTH_RATE_LIMITED = True
AUTH_RATE_LIMIT = "5 per second"
RATELIMIT_ENABLED = True
RATELIMIT_APPLICATION = "500 per second"
RATELIMIT_STORAGE_URI = "memory://"
PERMANENT_SESSION_LIFETIME = timedelta(hours=12)
# Each user asks Trino under her own name, so that what one may see is not shown to another.
FEATURE_FLAGS = {"CACHE_IMPERSONATION": True}
SESSION_COOKIE_SAMESITE = "Strict"
SQLLAB_TIMEOUT = 110
SUPERSET_WEBSERVER_TIMEOUT = 115
LOG_LEVEL = "WARNING"
APP_NAME = "Lakehouse"
