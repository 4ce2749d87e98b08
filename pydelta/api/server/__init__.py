"""Serve the DataFrame API of remote clients, which Spark Connect's planner would not route to this engine."""

from __future__ import annotations

import pydelta.engines.spark  # noqa: F401 - refuses a Spark that this engine is not made for, before it is imported
