"""Serve the DataFrame API of remote clients: what Spark Connect's planner would not send to this engine."""

from __future__ import annotations

import pydelta.engines.spark  # noqa: F401 - refuses a Spark that this engine is not made for, before it is imported
