"""Serve clients of JDBC, ODBC and Spark Connect with this engine, from one process."""

from __future__ import annotations

import pydelta.engines.spark  # noqa: F401 - refuses a Spark that this engine is not made for, before it is imported
