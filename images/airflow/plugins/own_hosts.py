"""Refuse requests that name another host: pages of other sites cannot reach the API under a name of their own."""

from airflow.plugins_manager import AirflowPlugin
from starlette.middleware.trustedhost import TrustedHostMiddleware


class OwnHosts(AirflowPlugin):
    """The names by which a browser, the stack and Airflow's own processes call it."""

    name = "own_hosts"
    fastapi_root_middlewares = [  # noqa: RUF012 -- Airflow reads it so
        {
            "name": "own hosts",
            "middleware": TrustedHostMiddleware,
            "args": [],
            "kwargs": {"allowed_hosts": ["127.0.0.1", "localhost", "airflow"], "www_redirect": False},
        }
    ]
